// A block's shared memory: one allocation a variable, refilled with 0xFF for every block, with a canary behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msbench_cpu {

class SharedMemory {
public:
    /// A new block: what its predecessor left is gone.
    void start_block(size_t dynamic_bytes);

    void* variable(unsigned slot, size_t size, size_t align, const char* name);
    void* dynamic() const { return dynamic_.data; }
    size_t dynamic_size() const { return dynamic_.size; }

    /// The sum of the static variables that this block has touched.
    size_t static_bytes() const { return static_bytes_; }

    /// The variable behind which something was written, or null.
    const char* damaged() const;

    /// Whose memory (or whose surroundings, up to 256 bytes) an address is: for reports. False if nobody's.
    bool describe(uintptr_t address, const char** name, long* offset, size_t* size) const;

private:
    struct Variable {
        char* data = nullptr;
        size_t size = 0;
        size_t align = 0;
        uint64_t block = 0;  // the block that it was filled for
        const char* name = "";
        void allocate(size_t new_size, size_t new_align);
        bool intact() const;
        void fill();
    };

    std::vector<Variable> variables_;
    std::vector<unsigned> touched_;
    Variable dynamic_;
    uint64_t block_ = 0;
    size_t static_bytes_ = 0;
};

}  // namespace msbench_cpu
