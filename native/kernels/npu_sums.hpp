// Eight results of a product, as floats.
#pragma once
#include "kernels/npu_layout.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

template <Format F>
inline vf npu_sums(const uint8_t* c) {
  if constexpr (F == Format::int8) {
    // Not by way of a copy: GCC 12 copies in halves, and reading those back as one vector stalls.
    const int32_t* sums = reinterpret_cast<const int32_t*>(c);
    alignas(32) float floats[8];
    for (int i = 0; i < 8; ++i) floats[i] = static_cast<float>(sums[i]);
    return load(floats);
  } else {
    return load(reinterpret_cast<const float*>(c));
  }
}

}  // namespace MN_ISA
}  // namespace mn
