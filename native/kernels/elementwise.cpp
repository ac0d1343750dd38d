#include "kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

void rms_norm(const RmsNormArgs& a) {
  parallel_for(a.rows, [&](int64_t row, int) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    vf squares = zero();
    int64_t i = 0;
    for (; i + 8 <= a.width; i += 8) squares = fma(load(x + i), load(x + i), squares);
    vf tail = load_partial(x + i, static_cast<int>(a.width - i));
    squares = fma(tail, tail, squares);
    vf scale = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(a.width) + a.eps));
    for (i = 0; i + 8 <= a.width; i += 8) store(y + i, load(x + i) * scale * load(a.weight + i));
    int n = static_cast<int>(a.width - i);
    store_partial(y + i, load_partial(x + i, n) * scale * load_partial(a.weight + i, n), n);
  });
}

void head_gate(const HeadGateArgs& a) {
  parallel_for(a.rows, [&](int64_t row, int) {
    for (int64_t h = 0; h < a.heads; ++h) {
      float* o = a.o + (row * a.heads + h) * a.dim;
      vf gate = sigmoid(set1(a.gate[row * a.heads + h]));
      for (int64_t i = 0; i < a.dim; i += 8) {
        int n = static_cast<int>(std::min<int64_t>(8, a.dim - i));
        store_partial(o + i, load_partial(o + i, n) * gate, n);
      }
    }
  });
}

void embed(const EmbedArgs& a) {
  parallel_for(a.rows, [&](int64_t row, int) {
    const int64_t id = a.ids[row];
    float* out = a.out + row * a.width;
    if (a.type == TableType::fp32) {
      std::memcpy(out, static_cast<const float*>(a.table) + id * a.width, a.width * sizeof(float));
      return;
    }
    const uint16_t* half = static_cast<const uint16_t*>(a.table) + id * a.width;
    const int8_t* bytes = static_cast<const int8_t*>(a.table) + id * a.width;
    const vf scale = set1(a.type == TableType::int8 ? a.scales[id] : 1.0f);
    auto eight = [&](const uint16_t* h, const int8_t* b) {
      return a.type == TableType::bf16   ? load_bf16(h)
             : a.type == TableType::fp16 ? load_f16(h)
                                         : load_i8(b) * scale;
    };
    int64_t i = 0;
    for (; i + 8 <= a.width; i += 8) store(out + i, eight(half + i, bytes + i));
    if (i == a.width) return;
    uint16_t half_tail[8] = {};
    int8_t byte_tail[8] = {};
    if (a.type == TableType::int8)
      std::memcpy(byte_tail, bytes + i, a.width - i);
    else
      std::memcpy(half_tail, half + i, (a.width - i) * 2);
    store_partial(out + i, eight(half_tail, byte_tail), static_cast<int>(a.width - i));
  });
}

namespace {

constexpr int64_t kPiece = 4096;  // elements of a task

template <class F>
void map(const ApplyArgs& a, F f) {
  parallel_for((a.count + kPiece - 1) / kPiece, [&](int64_t task, int) {
    const int64_t last = std::min((task + 1) * kPiece, a.count);
    for (int64_t i = task * kPiece; i < last; i += 8) {
      int n = static_cast<int>(std::min<int64_t>(8, last - i));
      store_partial(a.y + i, f(load_partial(a.x + i, n)), n);
    }
  });
}

}  // namespace

void apply(const ApplyArgs& a) {
  switch (a.function) {
    case Function::exp:
      return map(a, [](vf x) { return exp(x); });
    case Function::sigmoid:
      return map(a, [](vf x) { return sigmoid(x); });
    case Function::silu:
      return map(a, [](vf x) { return silu(x); });
    case Function::softplus:
      return map(a, [](vf x) { return softplus(x); });
  }
}

void to_half(const ToHalfArgs& a) {
  parallel_for((a.count + kPiece - 1) / kPiece, [&](int64_t task, int) {
    const int64_t last = std::min((task + 1) * kPiece, a.count);
    int64_t i = task * kPiece;
    if (a.bf16) {
      for (; i + 8 <= last; i += 8) store_bf16(a.y + i, load(a.x + i));
      for (; i < last; ++i) a.y[i] = to_bf16(a.x[i]);
    } else {
      for (; i + 8 <= last; i += 8) store_f16(a.y + i, load(a.x + i));
      for (; i < last; ++i) a.y[i] = to_f16(a.x[i]);
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
