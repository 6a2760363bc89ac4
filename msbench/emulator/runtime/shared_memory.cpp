#include "shared_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace msbench_cpu {

namespace {

// AddressSanitizer has its own redzones behind an allocation; the canary would hide the first bytes of an overrun.
#ifdef MSBENCH_CPU_ASAN
constexpr size_t canary_bytes = 0;
#else
constexpr size_t canary_bytes = 64;
#endif
constexpr unsigned char canary = 0xA5;

}  // namespace

void SharedMemory::Variable::allocate(size_t new_size, size_t new_align) {
    if (data && size == new_size && align >= new_align) return;
    std::free(data);
    size = new_size;
    align = std::max<size_t>(new_align, 16);
    void* memory = nullptr;
    if (posix_memalign(&memory, align, std::max<size_t>(size + canary_bytes, 1)) != 0) std::abort();
    data = static_cast<char*>(memory);
}

void SharedMemory::Variable::fill() {
    std::memset(data, 0xFF, size);
    std::memset(data + size, canary, canary_bytes);
}

bool SharedMemory::Variable::intact() const {
    return std::all_of(data + size, data + size + canary_bytes,
                       [](char c) { return static_cast<unsigned char>(c) == canary; });
}

void SharedMemory::start_block(size_t dynamic_bytes) {
    ++block_;
    touched_.clear();
    static_bytes_ = 0;
    dynamic_.allocate(dynamic_bytes, 128);  // even no bytes have an address, and canaries or redzones behind it
    dynamic_.name = "the dynamic shared memory";
    dynamic_.fill();
}

void* SharedMemory::variable(unsigned slot, size_t size, size_t align, const char* name) {
    if (variables_.size() <= slot) variables_.resize(slot + 1);
    Variable& v = variables_[slot];
    if (v.block != block_) {
        v.allocate(size, align);
        v.fill();
        v.name = name;
        v.block = block_;
        touched_.push_back(slot);
        static_bytes_ += size;
    }
    return v.data;
}

const char* SharedMemory::damaged() const {
    for (unsigned slot : touched_)
        if (!variables_[slot].intact()) return variables_[slot].name;
    return !dynamic_.intact() ? dynamic_.name : nullptr;
}

bool SharedMemory::describe(uintptr_t address, const char** name, long* offset, size_t* size) const {
    constexpr uintptr_t near = 256;
    auto matches = [&](const Variable& v, uintptr_t margin) {
        auto begin = reinterpret_cast<uintptr_t>(v.data);
        if (!v.data || address + margin < begin || address >= begin + v.size + margin) return false;
        *name = v.name;
        *offset = static_cast<long>(address - begin);
        *size = v.size;
        return true;
    };
    for (uintptr_t margin : {uintptr_t{0}, near}) {
        for (unsigned slot : touched_)
            if (matches(variables_[slot], margin)) return true;
        if (matches(dynamic_, margin)) return true;
    }
    return false;
}

}  // namespace msbench_cpu
