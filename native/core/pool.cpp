#include "core/pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
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
  asm volatile("isb");  // waits about as long as x86's pause; yield does nothing on Cortex-A
#endif
}

using Body = void (*)(void* context, int64_t task, int worker);

// Keeps threads on some processors. A thread inherits its creator's, so that one that may go anywhere is told
// so too, once any was kept.
class Affinity {
 public:
  void choose(std::vector<int> cpus) {
#if defined(__linux__)
    if (!kept_ && !cpus.empty()) kept_ = sched_getaffinity(0, sizeof before_, &before_) == 0;
#endif
    cpus_ = std::move(cpus);
    ++version_;
  }
  const std::vector<int>& cpus() const { return cpus_; }

  void apply() const {  // to the calling thread, once a choice
    thread_local uint64_t applied = 0;
    if (applied == version_) return;
    applied = version_;
#if defined(__linux__)
    if (!kept_) return;
    cpu_set_t set = before_;
    if (!cpus_.empty()) {
      CPU_ZERO(&set);
      for (int cpu : cpus_) CPU_SET(cpu, &set);
    }
    sched_setaffinity(0, sizeof set, &set);
#endif
  }

 private:
  std::vector<int> cpus_;
  uint64_t version_ = 0;
  bool kept_ = false;
#if defined(__linux__)
  cpu_set_t before_{};
#endif
};

Affinity affinity;  // changes only between two pools

struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
  ~Scratch() { std::free(data); }
};

// A run is over when its tasks are, not when every thread has come by: a thread that the system keeps
// off its core costs nothing unless it holds a task. Each worker has a range of consecutive tasks, so that
// one that reads weights reads one stream, and takes from the end of the others' ranges when its own is
// done. A range is one word with the run's number in it, so that a latecomer can't claim a task of a later
// run with the old body.
class Pool {
 public:
  explicit Pool(int threads) : ranges_(threads), scratch_(threads) {
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
    const uint32_t run = (run_.load(std::memory_order_relaxed) + 1) & kRunMask;
    grain_ = (tasks + kMost - 1) / kMost;
    const int64_t grains = (tasks + grain_ - 1) / grain_;
    tasks_ = tasks;
    body_ = body;
    context_ = context;
    remaining_.store(grains, std::memory_order_relaxed);
    for (int w = 0; w < size(); ++w)
      ranges_[w].word.store(word(run, grains * w / size(), grains * (w + 1) / size()));
    run_.store(run);
    if (sleeping_.load() > 0) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      }
      wake_.notify_all();
    }
    claim(run, 0);
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
  // 24 bits for the run, 20 each for the range's first task and its end; more tasks than that go in grains.
  static constexpr int64_t kMost = (1 << 20) - 1;
  static constexpr uint32_t kRunMask = (1u << 24) - 1;
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };

  static uint64_t word(uint64_t run, int64_t begin, int64_t end) {
    return run << 40 | static_cast<uint64_t>(begin) << 20 | static_cast<uint64_t>(end);
  }

  // The next grain of a range, its first one or its last one; -1 if there is none left in this run.
  int64_t take(Range& range, uint32_t run, bool first) {
    uint64_t now = range.word.load();
    for (;;) {
      const int64_t begin = static_cast<int64_t>(now >> 20) & kMost, end = static_cast<int64_t>(now) & kMost;
      if (now >> 40 != run || begin >= end) return -1;
      const uint64_t then = first ? word(run, begin + 1, end) : word(run, begin, end - 1);
      if (range.word.compare_exchange_weak(now, then)) return first ? begin : end - 1;
    }
  }

  void claim(uint32_t run, int worker) {
    for (int i = 0; i < size(); ++i) {
      Range& range = ranges_[static_cast<size_t>((worker + i) % size())];
      for (int64_t grain; (grain = take(range, run, i == 0)) >= 0;) {
        for (int64_t t = grain * grain_; t < std::min((grain + 1) * grain_, tasks_); ++t)
          body_(context_, t, worker);
        if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
          {
            std::lock_guard<std::mutex> lock(mutex_);
          }
          done_.notify_one();
        }
      }
    }
  }

  void work(int worker) {
    affinity.apply();
    uint32_t seen = 0;
    auto fresh = [&] { return run_.load() != seen; };
    for (;;) {
      for (int spin = 0; !fresh(); ++spin) {
        if (stop_.load(std::memory_order_acquire)) return;
        if (spin < kSpins) {
          relax();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_.fetch_add(1);
        wake_.wait(lock, [&] { return fresh() || stop_.load(std::memory_order_acquire); });
        sleeping_.fetch_sub(1);
      }
      seen = run_.load();
      claim(seen, worker);
    }
  }

  std::vector<std::thread> threads_;
  std::vector<Range> ranges_;
  std::vector<Scratch> scratch_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<uint32_t> run_{0};
  std::atomic<int64_t> remaining_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stop_{false};
  int64_t tasks_ = 0, grain_ = 1;
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
  affinity.apply();
  pool().run(tasks, body, context);
}

int pool_size() {
  std::lock_guard<std::mutex> lock(entry);
  return pool().size();
}

void set_pool_size(int threads, std::vector<int> cpus) {
  std::lock_guard<std::mutex> lock(entry);
  if (instance && instance->size() == threads && affinity.cpus() == cpus) return;
  instance.reset();
  if (affinity.cpus() != cpus) affinity.choose(std::move(cpus));
  instance = std::make_unique<Pool>(threads);
}

std::vector<int> pool_cpus() {
  std::lock_guard<std::mutex> lock(entry);
  return affinity.cpus();
}

void* worker_scratch(int worker, int64_t bytes) {
  return pool().scratch(worker, bytes);
}

int64_t scratch_bytes() {
  std::lock_guard<std::mutex> lock(entry);
  return pool().scratch_bytes();
}

}  // namespace mn
