// Who computes what: (token, slot) pairs sorted by expert, and the tasks made of them. The split depends on
// the shapes and the routes only, never on the number of threads.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "kernels/experts.hpp"

namespace mn {
namespace MN_ISA {

// Memory of a calling thread that grows and stays, for what a call's phases hand to each other.
class CallScratch {
 public:
  ~CallScratch() { std::free(data_); }
  uint8_t* get(int64_t bytes) {
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ =
          static_cast<uint8_t*>(std::aligned_alloc(4096, static_cast<size_t>((bytes + 4095) / 4096 * 4096)));
      if (!data_) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct ExpertsPlan {
  struct Segment {
    int32_t expert, begin, end;  // sorted pairs
  };
  struct Task {
    int32_t expert, begin, end, part_begin, part_end;  // sorted pairs; parts of the inner width
  };
  std::vector<Segment> segments;  // by expert
  std::vector<int32_t> tokens;    // of the sorted pairs; rising inside a segment
  std::vector<float> weights;     // of the sorted pairs
  std::vector<Task> tasks;        // of the first phase

  // Tasks of at most `block` rows; each has all `parts` where there are many rows, else one.
  void make(const Routes& r, int64_t block, int64_t parts) {
    const int64_t pairs = r.tokens * r.slots;
    starts_.assign(static_cast<size_t>(r.experts + 1), 0);
    for (int64_t i = 0; i < pairs; ++i) ++starts_[r.ids[i] + 1];
    for (int64_t e = 0; e < r.experts; ++e) starts_[e + 1] += starts_[e];
    segments.clear();
    tasks.clear();
    for (int64_t e = 0; e < r.experts; ++e)
      if (starts_[e] < starts_[e + 1])
        segments.push_back({static_cast<int32_t>(e), starts_[e], starts_[e + 1]});
    tokens.resize(static_cast<size_t>(pairs));
    weights.resize(static_cast<size_t>(pairs));
    for (int64_t i = 0; i < pairs; ++i) {
      int32_t at = starts_[r.ids[i]]++;
      tokens[at] = static_cast<int32_t>(i / r.slots);
      weights[at] = r.weights[i];
    }
    int64_t blocks = 0;
    for (const Segment& s : segments) blocks += (s.end - s.begin + block - 1) / block;
    const bool whole = blocks >= 64;
    for (const Segment& s : segments) {
      int64_t n = s.end - s.begin, count = (n + block - 1) / block;
      for (int64_t b = 0; b < count; ++b)
        for (int64_t p = 0; p < parts; p += whole ? parts : 1)
          tasks.push_back({s.expert, static_cast<int32_t>(s.begin + b * n / count),
                           static_cast<int32_t>(s.begin + (b + 1) * n / count), static_cast<int32_t>(p),
                           static_cast<int32_t>(whole ? parts : p + 1)});
    }
  }

  // The segment's pairs whose tokens are in [low, high).
  Segment within(const Segment& s, int64_t low, int64_t high) const {
    auto first = tokens.begin() + s.begin, last = tokens.begin() + s.end;
    return {s.expert, static_cast<int32_t>(std::lower_bound(first, last, low) - tokens.begin()),
            static_cast<int32_t>(std::lower_bound(first, last, high) - tokens.begin())};
  }

  bool consecutive(int64_t begin, int64_t end) const {
    return tokens[end - 1] - tokens[begin] == end - 1 - begin &&
           std::adjacent_find(tokens.begin() + begin, tokens.begin() + end) == tokens.begin() + end;
  }

 private:
  std::vector<int32_t> starts_;
};

}  // namespace MN_ISA
}  // namespace mn
