// Memory that grows and never shrinks by itself; not zeroed.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mn {

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  // At least `bytes`, aligned to 64; large ones to 2 MiB, so that the system may back them by huge pages.
  // What was in it is lost when it grows.
  void* reserve(int64_t bytes) {
    if (bytes <= bytes_) return data_;
    release();
    const int64_t unit = bytes >= kHuge ? kHuge : 4096, rounded = (bytes + unit - 1) / unit * unit;
    data_ = std::aligned_alloc(static_cast<size_t>(unit), static_cast<size_t>(rounded));
    if (!data_) throw std::bad_alloc();
    bytes_ = rounded;
#if defined(__linux__)
    if (unit == kHuge) madvise(data_, static_cast<size_t>(rounded), MADV_HUGEPAGE);
#endif
    return data_;
  }
  void release() {
    std::free(data_);
    data_ = nullptr;
    bytes_ = 0;
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kHuge = int64_t{2} << 20;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace mn
