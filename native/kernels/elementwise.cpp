#include "kernels/elementwise.hpp"

#include <cmath>

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

}  // namespace MN_ISA
}  // namespace mn
