#include "core/pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mn {
namespace {

// About 100 microseconds: longer than the gap between two kernels of a decode step, far shorter than a
// scheduler quantum, so an oversubscribed machine loses little.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using Body = void (*)(void* context, int64_t task, int worker);

struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
  ~Scratch() { std::free(data); }
};

// A run is over when its tasks are, not when every thread has come by: a thread that the system keeps
// off its core costs nothing unless it holds a task. So that a latecomer can't claim a task of a later run
// with the old body, claims go through one word that holds the run's number and the next task.
class Pool {
 public:
  explicit Pool(int threads) : scratch_(threads) {
    for (int w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  void run(int64_t tasks, Body body, void* context) {
    if (threads_.empty() || tasks <= 1) {
      for (int64_t t = 0; t < tasks; ++t) body(context, t, 0);
      return;
    }
    ++run_;
    ticket_.store(ticket(run_, kClosed));
    tasks_.store(tasks, std::memory_order_relaxed);
    body_ = body;
    context_ = context;
    remaining_.store(tasks, std::memory_order_relaxed);
    ticket_.store(ticket(run_, 0));
    if (sleeping_.load() > 0) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      }
      wake_.notify_all();
    }
    claim(run_, 0);
    for (int spin = 0; spin < kSpins; ++spin) {
      if (remaining_.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return remaining_.load(std::memory_order_acquire) == 0; });
  }

  void* scratch(int worker, int64_t bytes) {
    Scratch& s = scratch_[worker];
    if (s.bytes < bytes) {
      std::free(s.data);
      s.bytes = 0;
      int64_t rounded = (bytes + 4095) / 4096 * 4096;
      s.data = std::aligned_alloc(4096, rounded);
      if (!s.data) throw std::bad_alloc();
      s.bytes = rounded;
    }
    return s.data;
  }

  int64_t scratch_bytes() const {
    int64_t sum = 0;
    for (auto& s : scratch_) sum += s.bytes;
    return sum;
  }

 private:
  static constexpr uint64_t kClosed = 0xffffffffu;
  static uint64_t ticket(uint64_t run, uint64_t next) { return run << 32 | next; }

  void claim(uint32_t run, int worker) {
    for (;;) {
      uint64_t now = ticket_.load();
      uint64_t next = now & kClosed;
      if (now >> 32 != run || next == kClosed ||
          static_cast<int64_t>(next) >= tasks_.load(std::memory_order_relaxed))
        return;
      if (!ticket_.compare_exchange_weak(now, now + 1)) continue;
      body_(context_, static_cast<int64_t>(next), worker);
      if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        {
          std::lock_guard<std::mutex> lock(mutex_);
        }
        done_.notify_one();
      }
    }
  }

  bool fresh(uint32_t seen) const {
    uint64_t now = ticket_.load();
    return now >> 32 != seen && (now & kClosed) != kClosed;
  }

  void work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      for (int spin = 0; !fresh(seen); ++spin) {
        if (stop_.load(std::memory_order_acquire)) return;
        if (spin < kSpins) {
          relax();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_.fetch_add(1);
        wake_.wait(lock, [&] { return fresh(seen) || stop_.load(std::memory_order_acquire); });
        sleeping_.fetch_sub(1);
      }
      seen = static_cast<uint32_t>(ticket_.load() >> 32);
      claim(seen, worker);
    }
  }

  std::vector<std::thread> threads_;
  std::vector<Scratch> scratch_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<uint64_t> ticket_{kClosed};
  std::atomic<int64_t> tasks_{0}, remaining_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stop_{false};
  uint32_t run_ = 0;
  Body body_ = nullptr;
  void* context_ = nullptr;
};

std::mutex entry;  // kernels are called from one thread at a time; others wait here
std::unique_ptr<Pool> instance;

Pool& pool() {
  if (!instance) {
    unsigned cores = std::thread::hardware_concurrency();
    instance = std::make_unique<Pool>(std::max(1u, cores));
  }
  return *instance;
}

}  // namespace

void pool_run(int64_t tasks, Body body, void* context) {
  std::lock_guard<std::mutex> lock(entry);
  pool().run(tasks, body, context);
}

int pool_size() {
  std::lock_guard<std::mutex> lock(entry);
  return pool().size();
}

void set_pool_size(int threads) {
  std::lock_guard<std::mutex> lock(entry);
  if (instance && instance->size() == threads) return;
  instance.reset();
  instance = std::make_unique<Pool>(threads);
}

void* worker_scratch(int worker, int64_t bytes) {
  return pool().scratch(worker, bytes);
}

int64_t scratch_bytes() {
  std::lock_guard<std::mutex> lock(entry);
  return pool().scratch_bytes();
}

}  // namespace mn
