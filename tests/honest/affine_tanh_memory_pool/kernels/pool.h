#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

// Blocks of one size, handed out and taken back; freed when the thread ends.
class Pool {
 public:
    explicit Pool(std::size_t bytes) : bytes_((bytes + 63) / 64 * 64) {}
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() {
        for (void* block : all_) std::free(block);
    }
    void* take() {
        if (free_.empty()) {
            void* block = std::aligned_alloc(64, bytes_);
            if (block == nullptr) throw std::bad_alloc();
            all_.push_back(block);
            free_.push_back(block);
        }
        void* block = free_.back();
        free_.pop_back();
        return block;
    }
    void give(void* block) { free_.push_back(block); }

 private:
    std::size_t bytes_;
    std::vector<void*> all_, free_;
};
