#include "kernels/experts.hpp"

#include "core/pool.hpp"
#include "kernels/experts_plan.hpp"
#include "kernels/linear_output.hpp"
#include "kernels/linear_panels.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kGatherBytes = 192 << 10;  // activations of a task's rows: they stay in L2 over the panels
constexpr int64_t kPart = 16;                // gate_up panels that make one quantization group of 128
constexpr int64_t kTokenRange = 1024;        // tokens of a task of the second phase: its output stays in L2
constexpr int64_t kDownPanels = 4;           // output panels of such a task

thread_local ExpertsPlan plan;
thread_local CallScratch call_scratch;

int64_t rows_in_l2(int64_t groups) {
  return std::clamp<int64_t>(kGatherBytes / (32 * groups), 20, 120) / 20 * 20;
}

// The rows of x that the sorted pairs begin .. end name, side by side in `to` unless they are already.
QuantizedRows gather(const ExpertsPlan& p, const QuantizedRows& x, int64_t begin, int64_t end, uint8_t* to) {
  const int64_t n = end - begin;
  if (p.consecutive(begin, end)) {
    int64_t t = p.tokens[begin];
    return {x.q + t * x.q_stride,
            x.scales + t * x.scale_stride,
            x.pairs + t * x.pair_stride,
            n,
            x.q_stride,
            x.scale_stride,
            x.pair_stride};
  }
  int8_t* q = reinterpret_cast<int8_t*>(to);
  float* scales = reinterpret_cast<float*>(q + n * x.q_stride);
  int16_t* pairs = reinterpret_cast<int16_t*>(scales + n * x.scale_stride);
  for (int64_t i = 0; i < n; ++i) {
    int64_t t = p.tokens[begin + i];
    std::memcpy(q + i * x.q_stride, x.q + t * x.q_stride, static_cast<size_t>(x.q_stride));
    std::memcpy(scales + i * x.scale_stride, x.scales + t * x.scale_stride,
                static_cast<size_t>(4 * x.scale_stride));
    std::memcpy(pairs + i * x.pair_stride, x.pairs + t * x.pair_stride,
                static_cast<size_t>(2 * x.pair_stride));
  }
  return {q, scales, pairs, n, x.q_stride, x.scale_stride, x.pair_stride};
}

// Hidden activations of all pairs, quantized like any others.
struct Hidden {
  int8_t* q;
  float* scales;
  int16_t* pairs;
  int64_t width, scale_width;

  QuantizedRows rows(int64_t count) const {
    return {q, scales, pairs, count, width, scale_width, width / 16};
  }
};

// The panels of w up to `end`, and then those of `next` from `panel` on.
Stream stream_to(const PackedWeights& w, int64_t end, const PackedWeights& next, int64_t panel) {
  const uint8_t* stop = w.data + end * w.panel_bytes();
  return {stop, next.data + panel * next.panel_bytes() - stop};
}

void gate_up_task(const ExpertsArgs& a, const ExpertsPlan& p, int64_t index, const Hidden& h, int worker) {
  const ExpertsPlan::Task& task = p.tasks[index];
  const ExpertsPlan::Task& next = p.tasks[std::min<size_t>(index + 1, p.tasks.size() - 1)];
  const int64_t n = task.end - task.begin, panels = a.gate_up.panels();
  const int64_t acc_bytes = kPanelsAtOnce * n * 64, part_bytes = n * 512;
  const int64_t row_bytes = a.x.q_stride + 4 * a.x.scale_stride + 2 * a.x.pair_stride;
  uint8_t* open =
      static_cast<uint8_t*>(worker_scratch(worker, kOpenBytes + acc_bytes + part_bytes + n * row_bytes));
  float* acc = reinterpret_cast<float*>(open + kOpenBytes);
  float* part = reinterpret_cast<float*>(open + kOpenBytes + acc_bytes);  // [n, 128]
  QuantizedRows x = gather(p, a.x, task.begin, task.end, open + kOpenBytes + acc_bytes + part_bytes);
  PackedWeights w = a.gate_up.matrix(task.expert);
  const Stream stream = stream_to(w, std::min(panels, task.part_end * kPart), a.gate_up.matrix(next.expert),
                                  next.part_begin * kPart);
  for (int64_t first = task.part_begin * kPart; first < std::min(panels, task.part_end * kPart);
       first += kPart) {
    const int64_t last = std::min(panels, first + kPart);
    for (int64_t panel = first; panel < last; panel += kPanelsAtOnce) {
      int64_t count = std::min(kPanelsAtOnce, last - panel);
      multiply_panels(w, panel, count, x, 0, n, acc, open, stream);
      for (int64_t c = 0; c < count; ++c)
        for (int64_t i = 0; i < n; ++i) {
          const float* v = acc + (c * n + i) * 16;
          store(part + i * 128 + (panel + c - first) * 8, silu(load(v)) * load(v + 8));
        }
    }
    const int64_t at = first * 8;
    const int valid = static_cast<int>((last - first) * 8);
    const int padded = static_cast<int>(std::min<int64_t>(128, h.width - at));
    for (int64_t i = 0; i < n; ++i) {
      int64_t row = task.begin + i;
      quantize_group(part + i * 128, valid, padded, h.q + row * h.width + at,
                     h.scales + row * h.scale_width + at / 128, h.pairs + (row * h.width + at) / 16);
    }
  }
}

void down_task(const ExpertsArgs& a, const ExpertsPlan& p, const QuantizedRows& hidden, int64_t panel_begin,
               int64_t panel_end, int64_t low, int64_t high, int worker) {
  const int64_t width = a.down.rows, block = rows_in_l2(a.down.groups());
  uint8_t* open = static_cast<uint8_t*>(worker_scratch(worker, kOpenBytes + kPanelsAtOnce * block * 64));
  float* acc = reinterpret_cast<float*>(open + kOpenBytes);
  if (!a.accumulate)
    for (int64_t t = low; t < high; ++t)
      std::memset(a.out + t * width + panel_begin * 16, 0,
                  static_cast<size_t>(4 * (std::min(width, panel_end * 16) - panel_begin * 16)));
  for (size_t i = 0; i < p.segments.size(); ++i) {
    const bool last = i + 1 == p.segments.size();
    ExpertsPlan::Segment s = p.within(p.segments[i], low, high);
    PackedWeights w = a.down.matrix(s.expert);
    const Stream stream = stream_to(w, panel_end, a.down.matrix(p.segments[last ? 0 : i + 1].expert),
                                    last ? std::min(panel_end, a.down.panels() - 1) : panel_begin);
    for (int64_t row = s.begin; row < s.end; row += block) {
      const int64_t n = std::min<int64_t>(block, s.end - row);
      for (int64_t panel = panel_begin; panel < panel_end; panel += kPanelsAtOnce) {
        int64_t count = std::min(kPanelsAtOnce, panel_end - panel);
        multiply_panels(w, panel, count, hidden, row, n, acc, open, stream);
        for (int64_t c = 0; c < count; ++c)
          for (int64_t r = row; r < row + n; ++r)
            add_weighted(acc + (c * n + r - row) * 16, p.weights[r], width - 16 * (panel + c),
                         a.out + p.tokens[r] * width + 16 * (panel + c));
      }
    }
  }
}

}  // namespace

void experts_quantized(const ExpertsArgs& a) {
  ExpertsPlan& p = plan;
  const int64_t pairs = a.routes.tokens * a.routes.slots;
  const int64_t parts = (a.gate_up.panels() + kPart - 1) / kPart;
  p.make(a.routes, rows_in_l2(a.gate_up.groups()), parts);

  Hidden h;
  h.width = 32 * a.down.groups();
  h.scale_width = (h.width + 127) / 128;
  const int64_t q_bytes = (pairs * h.width + 63) / 64 * 64, scale_bytes = pairs * h.scale_width * 4;
  uint8_t* memory = call_scratch.get(q_bytes + scale_bytes + pairs * h.width / 8);
  h.q = reinterpret_cast<int8_t*>(memory);
  h.scales = reinterpret_cast<float*>(memory + q_bytes);
  h.pairs = reinterpret_cast<int16_t*>(memory + q_bytes + scale_bytes);
  parallel_for(static_cast<int64_t>(p.tasks.size()),
               [&](int64_t task, int worker) { gate_up_task(a, p, task, h, worker); });

  const QuantizedRows hidden = h.rows(pairs);
  const int64_t panels = a.down.panels(), ranges = (panels + kDownPanels - 1) / kDownPanels;
  const int64_t spans = (a.routes.tokens + kTokenRange - 1) / kTokenRange;
  parallel_for(ranges * spans, [&](int64_t task, int worker) {
    int64_t begin = task / spans * kDownPanels, low = task % spans * kTokenRange;
    down_task(a, p, hidden, begin, std::min(begin + kDownPanels, panels), low,
              std::min(low + kTokenRange, a.routes.tokens), worker);
  });
}

}  // namespace MN_ISA
}  // namespace mn
