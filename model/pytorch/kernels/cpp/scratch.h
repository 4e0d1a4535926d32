// Scratch memory of one thread: it grows on demand and is kept until the thread ends.
#pragma once

#include <cstdlib>

#include "words.h"

namespace HEADLIGHT_NAMESPACE {

class Scratch {
   public:
    ~Scratch() { std::free(memory_); }

    // Returns at least `bytes`, aligned to a cache line; null if out of memory.
    char *reserve(size_t bytes) {
        if (bytes > size_) {
            std::free(memory_);
            size_ = (size_t)rounded_up((int64_t)bytes, 4096);
            memory_ = static_cast<char *>(std::aligned_alloc(4096, size_));
            if (memory_ == nullptr) size_ = 0;
        }
        return memory_;
    }

   private:
    char *memory_ = nullptr;
    size_t size_ = 0;
};

}  // namespace HEADLIGHT_NAMESPACE
