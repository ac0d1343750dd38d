#include "kernels/quantize.hpp"

#include <algorithm>

#include "core/pool.hpp"
#include "kernels/linear_tiles.hpp"

namespace mn {
namespace MN_ISA {

void quantize_rows(const QuantizeRowsArgs& a) {
  const int64_t padded = (a.cols + 31) / 32 * 32, scales = (padded + 127) / 128;
  const int64_t step = std::max<int64_t>(1, 16384 / padded);  // about 10 microseconds a task
  parallel_for((a.rows + step - 1) / step, [&](int64_t task, int) {
    for (int64_t row = task * step; row < std::min(a.rows, (task + 1) * step); ++row)
      for (int64_t g = 0; g < scales; ++g) {
        int64_t at = 128 * g;
        quantize_group(a.x + row * a.cols + at, static_cast<int>(std::min<int64_t>(128, a.cols - at)),
                       static_cast<int>(std::min<int64_t>(128, padded - at)), a.q + row * padded + at,
                       a.scales + row * scales + g, a.pairs + (row * padded + at) / 16);
      }
  });
}

}  // namespace MN_ISA
}  // namespace mn
