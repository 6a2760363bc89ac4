#include "failure.hpp"

#include <cstdio>
#include <cstring>

#include "../include/msbench_cpu/runtime.hpp"

namespace msbench_cpu {

namespace {

/// Copies text into a JSON string's inside.
void escape(char* out, size_t size, const char* text) {
    size_t n = 0;
    for (; *text && n + 7 < size; ++text) {
        auto c = static_cast<unsigned char>(*text);
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = *text;
        } else if (c < 0x20) {
            n += static_cast<size_t>(std::snprintf(out + n, size - n, "\\u%04x", c));
        } else {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
}

template <size_t n>
void keep(char (&out)[n], const char* text) {
    std::snprintf(out, n, "%s", text);
}

}  // namespace

void Failure::clear() {
    set = false;
    taken_ = false;
}

void Failure::record(const char* kernel, const Fault& fault) {
    if (taken_.exchange(true)) return;
    error_ = fault.error;
    keep(kernel_, kernel);
    keep(message_, fault.message);
    keep(file_, fault.site ? fault.site->file_name() : "");
    line_ = fault.site ? fault.site->line() : 0;
    pc_ = fault.pc;
    in_thread_ = fault.in_thread;
    thread_ = threadIdx;
    block_ = blockIdx;
    set = true;
}

void Failure::copy_from(const Failure& other) {
    taken_ = other.taken_.load();
    error_ = other.error_;
    keep(kernel_, other.kernel_);
    keep(message_, other.message_);
    keep(file_, other.file_);
    line_ = other.line_;
    pc_ = other.pc_;
    in_thread_ = other.in_thread_;
    thread_ = other.thread_;
    block_ = other.block_;
    set = other.set.load();
}

void Failure::to_json(char* out, size_t size) const {
    char kernel[300], message[2100], file[600], where[160] = "";
    escape(kernel, sizeof kernel, kernel_);
    escape(message, sizeof message, message_);
    escape(file, sizeof file, file_);
    if (in_thread_)
        std::snprintf(where, sizeof where, R"(, "thread": [%u, %u, %u], "block": [%u, %u, %u])", thread_.x, thread_.y,
                      thread_.z, block_.x, block_.y, block_.z);
    std::snprintf(out, size, R"({"error": %d, "kernel": "%s", "message": "%s", "file": "%s", "line": %u, "pc": %zu%s})",
                  static_cast<int>(error_), kernel, message, file, line_, static_cast<size_t>(pc_), where);
}

}  // namespace msbench_cpu
