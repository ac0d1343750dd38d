#include "core/pool.hpp"
#include "kernels/experts.hpp"
#include "kernels/experts_plan.hpp"
#include "kernels/linear_dense_panels.hpp"
#include "kernels/linear_output.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kBlock = 48;  // rows of a task
constexpr int64_t kPart = 4;    // panels of the inner width that one task of few rows computes
constexpr int64_t kTokenRange = 512, kDownPanels = 4;

thread_local ExpertsPlan plan;
thread_local CallScratch call_scratch;

void gate_up_task(const ExpertsDenseArgs& a, const ExpertsPlan& p, const ExpertsPlan::Task& task,
                  float* hidden, int worker) {
  const int64_t n = task.end - task.begin, panels = (a.inner + 15) / 16;
  float* open = static_cast<float*>(worker_scratch(worker, kDenseOpenBytes + n * (128 + 4 * a.hidden)));
  float *gate = open + kDenseChunk * 16, *up = gate + n * 16, *x = up + n * 16;
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(x + i * a.hidden, a.x + p.tokens[task.begin + i] * a.hidden,
                static_cast<size_t>(4 * a.hidden));
  const DenseWeights wg = {a.type, a.gate[task.expert], a.inner, a.hidden};
  const DenseWeights wu = {a.type, a.up[task.expert], a.inner, a.hidden};
  for (int64_t panel = task.part_begin * kPart; panel < std::min(panels, task.part_end * kPart); ++panel) {
    multiply_dense(wg, panel, x, a.hidden, n, gate, open);
    multiply_dense(wu, panel, x, a.hidden, n, up, open);
    for (int64_t i = 0; i < n * 16; i += 8) store(gate + i, silu(load(gate + i)) * load(up + i));
    write_panel(gate, n, a.inner - 16 * panel, hidden + task.begin * a.inner + 16 * panel, a.inner, false);
  }
}

}  // namespace

void experts_dense(const ExpertsDenseArgs& a) {
  ExpertsPlan& p = plan;
  const int64_t inner_panels = (a.inner + 15) / 16, panels = (a.width + 15) / 16;
  p.make(a.routes, kBlock, (inner_panels + kPart - 1) / kPart);
  float* hidden = reinterpret_cast<float*>(call_scratch.get(a.routes.tokens * a.routes.slots * a.inner * 4));
  parallel_for(static_cast<int64_t>(p.tasks.size()),
               [&](int64_t task, int worker) { gate_up_task(a, p, p.tasks[task], hidden, worker); });

  const int64_t spans = (a.routes.tokens + kTokenRange - 1) / kTokenRange;
  parallel_for((panels + kDownPanels - 1) / kDownPanels * spans, [&](int64_t task, int worker) {
    const int64_t begin = task / spans * kDownPanels, end = std::min(begin + kDownPanels, panels);
    const int64_t low = task % spans * kTokenRange, high = std::min(low + kTokenRange, a.routes.tokens);
    float* open = static_cast<float*>(worker_scratch(worker, kDenseOpenBytes + kBlock * 64));
    float* acc = open + kDenseChunk * 16;
    if (!a.accumulate)
      for (int64_t t = low; t < high; ++t)
        std::memset(a.out + t * a.width + begin * 16, 0,
                    static_cast<size_t>(4 * (std::min(a.width, end * 16) - begin * 16)));
    for (const ExpertsPlan::Segment& whole : p.segments) {
      ExpertsPlan::Segment s = p.within(whole, low, high);
      const DenseWeights w = {a.type, a.down[s.expert], a.width, a.inner};
      for (int64_t row = s.begin; row < s.end; row += kBlock) {
        const int64_t n = std::min<int64_t>(kBlock, s.end - row);
        for (int64_t panel = begin; panel < end; ++panel) {
          multiply_dense(w, panel, hidden + row * a.inner, a.inner, n, acc, open);
          for (int64_t i = 0; i < n; ++i)
            add_weighted(acc + i * 16, p.weights[row + i], a.width - 16 * panel,
                         a.out + p.tokens[row + i] * a.width + 16 * panel);
        }
      }
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
