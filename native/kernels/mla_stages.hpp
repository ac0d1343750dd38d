// Where the time of an attention call goes, and the scratch of its tasks.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace mn {

// Nanoseconds summed over the tasks of a call. pack: quantizing, converting and rearranging; matmul: the
// products; softmax: what lies between them.
struct Stages {
  std::atomic<int64_t> pack{0}, matmul{0}, softmax{0};
};

// One task's clock: each mark charges the time since the last one. Read a few times per tile, at 25 ns each.
class StageClock {
 public:
  explicit StageClock(Stages* stages) : stages_(stages), last_(now()) {}
  ~StageClock() {
    stages_->pack.fetch_add(pack_, std::memory_order_relaxed);
    stages_->matmul.fetch_add(matmul_, std::memory_order_relaxed);
    stages_->softmax.fetch_add(softmax_, std::memory_order_relaxed);
  }
  void pack() { mark(pack_); }
  void matmul() { mark(matmul_); }
  void softmax() { mark(softmax_); }

 private:
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void mark(int64_t& stage) {
    int64_t t = now();
    stage += t - last_;
    last_ = t;
  }

  Stages* stages_;
  int64_t pack_ = 0, matmul_ = 0, softmax_ = 0, last_;
};

// Hands out parts of one block, each aligned to 64 bytes. With no block it only adds up their size.
class Parts {
 public:
  explicit Parts(void* block = nullptr) : base_(static_cast<char*>(block)) {}
  template <class T>
  T* take(int64_t count) {
    T* part = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }
  int64_t bytes() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

}  // namespace mn
