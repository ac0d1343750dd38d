#include "kernels/linear.hpp"

#include "core/pool.hpp"
#include "kernels/linear_output.hpp"
#include "kernels/linear_panels.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kBlockBytes = 192 << 10;  // activations of a token block: they stay in L2 over the panels
constexpr int64_t kTaskBytes = 160 << 10;   // packed weights of one task where few rows make it a pure stream

// out [n, stride] from its first row and column on: all panels from `begin` to `end`.
void multiply_range(const PackedWeights& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t row,
                    int64_t n, float* out, int64_t stride, bool accumulate, int worker) {
  int64_t acc_bytes = kPanelsAtOnce * n * 64;
  uint8_t* scratch = static_cast<uint8_t*>(worker_scratch(worker, kOpenBytes + acc_bytes));
  float* acc = reinterpret_cast<float*>(scratch + kOpenBytes);
  for (int64_t p = begin; p < end; p += kPanelsAtOnce) {
    int64_t count = std::min(kPanelsAtOnce, end - p);
    multiply_panels(w, p, count, x, row, n, acc, scratch);
    for (int64_t c = 0; c < count; ++c)
      write_panel(acc + c * n * 16, n, w.rows - 16 * (p + c), out + 16 * (p + c), stride, accumulate);
  }
}

}  // namespace

void linear_quantized(const LinearArgs& a) {
  const int64_t rows = a.x.rows, panels = a.w.panels();
  int64_t block = rows, step;
  if (rows <= kMaxDirect) {
    step = std::clamp<int64_t>(kTaskBytes / a.w.panel_bytes(), 1, std::max<int64_t>(1, panels / 8));
  } else {
    block = std::clamp<int64_t>(kBlockBytes / (32 * a.w.groups()), 24, 256);
    block = (rows + (rows + block - 1) / block - 1) / ((rows + block - 1) / block);
    step = 16;
  }
  const int64_t blocks = (rows + block - 1) / block, ranges = (panels + step - 1) / step;
  parallel_for(blocks * ranges, [&](int64_t task, int worker) {
    int64_t begin = task / blocks * step, row = task % blocks * block;
    multiply_range(a.w, begin, std::min(begin + step, panels), a.x, row, std::min(block, rows - row),
                   a.out + row * a.out_stride + a.column, a.out_stride, a.accumulate, worker);
  });
}

void linear_heads(const LinearHeadsArgs& a) {
  const int64_t block = std::min<int64_t>(a.tokens, 128), blocks = (a.tokens + block - 1) / block;
  parallel_for(a.heads * blocks, [&](int64_t task, int worker) {
    int64_t head = task / blocks, row = task % blocks * block;
    PackedWeights w = a.w.matrix(head);
    QuantizedRows x = {a.x.q + head * a.x.q_stride,
                       a.x.scales + head * a.x.scale_stride,
                       a.x.pairs + head * a.x.pair_stride,
                       a.tokens,
                       a.x.q_stride * a.heads,
                       a.x.scale_stride * a.heads,
                       a.x.pair_stride * a.heads};
    multiply_range(w, 0, w.panels(), x, row, std::min(block, a.tokens - row),
                   a.out + (row * a.heads + head) * w.rows, a.heads * w.rows, false, worker);
  });
}

}  // namespace MN_ISA
}  // namespace mn
