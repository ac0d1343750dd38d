#include "kernels/logits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kPiece = 16384;  // logits of a task, whatever the number of threads
constexpr int64_t kBlock = 64;     // logits that one comparison rules out
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Candidate {
  float value;
  int64_t id;
};

bool before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// NaN is passed over: max returns its second operand where one is NaN.
float largest(const float* x, int64_t n) {
  vf m = set1(kLowest);
  const int64_t whole = n - n % 8;
  for (int64_t i = 0; i < whole; i += 8) m = max(load(x + i), m);
  float top = maximum(m);
  for (int64_t i = whole; i < n; ++i) top = std::max(top, x[i]);  // where x[i] is NaN: top
  return top;
}

// The n best of logits [first, last) into `heap`, whose front is the worst of them. Returns how many there
// are.
int64_t select(const float* logits, int64_t first, int64_t last, int64_t n, Candidate* heap) {
  int64_t size = 0;
  auto offer = [&](int64_t id) {
    Candidate c{std::isnan(logits[id]) ? kLowest : logits[id], id};
    if (size < n) {
      heap[size++] = c;
      std::push_heap(heap, heap + size, before);
    } else if (before(c, heap[0])) {
      std::pop_heap(heap, heap + size, before);
      heap[size - 1] = c;
      std::push_heap(heap, heap + size, before);
    }
  };
  int64_t i = first;
  for (; i < last && size < n; ++i) offer(i);
  // An equal value further on has the larger id and so never enters: "not above" rules a block out.
  for (; i + kBlock <= last; i += kBlock) {
    if (largest(logits + i, kBlock) <= heap[0].value) continue;
    for (int64_t j = i; j < i + kBlock; ++j)
      if (logits[j] > heap[0].value) offer(j);
  }
  for (; i < last; ++i) offer(i);
  return size;
}

}  // namespace

void top_logits(const TopLogitsArgs& a) {
  const int64_t pieces = (a.count + kPiece - 1) / kPiece, room = std::min(a.n, kPiece);
  std::vector<Candidate> found(pieces * room);
  std::vector<int64_t> sizes(pieces);
  parallel_for(pieces, [&](int64_t p, int) {
    sizes[p] = select(a.logits, p * kPiece, std::min((p + 1) * kPiece, a.count), room, &found[p * room]);
  });
  int64_t total = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    std::copy_n(&found[p * room], sizes[p], &found[total]);
    total += sizes[p];
  }
  std::partial_sort(found.begin(), found.begin() + a.n, found.begin() + total, before);
  for (int64_t i = 0; i < a.n; ++i) {
    a.ids[i] = found[i].id;
    a.values[i] = found[i].value;
  }
}

void logsumexp(const LogSumExpArgs& a) {
  const int64_t pieces = (a.count + kPiece - 1) / kPiece;
  std::vector<float> tops(pieces);
  std::vector<double> sums(pieces);  // of e^(x - top)
  parallel_for(pieces, [&](int64_t p, int) {
    const float* x = a.logits + p * kPiece;
    const int64_t n = std::min(kPiece, a.count - p * kPiece);
    const float top = largest(x, n), shift = std::isfinite(top) ? top : 0.0f;
    vf total = zero();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) total = total + exp(load(x + i) - set1(shift));
    double rest = 0;
    for (; i < n; ++i) rest += std::exp(static_cast<double>(x[i]) - shift);
    tops[p] = top;
    sums[p] = sum(total) + rest;
  });
  const double top = *std::max_element(tops.begin(), tops.end());
  double total = 0;
  for (int64_t p = 0; p < pieces; ++p) total += tops[p] == top ? sums[p] : sums[p] * std::exp(tops[p] - top);
  *a.result = std::isnan(total) || std::isfinite(top) ? top + std::log(total) : top;
}

}  // namespace MN_ISA
}  // namespace mn
