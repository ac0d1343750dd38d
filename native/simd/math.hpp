// Functions over vf that every instruction set shares.
#pragma once

namespace mn {
namespace MN_ISA {

// e^x, relative error below 2e-7 (tested) in [-87.3, 88.3]; outside, the value at the end. NaN stays NaN: max
// and min return their second operand where one is NaN. Range reduction x = n ln2 + r with |r| <= ln2 / 2:
// adding 1.5 * 2^23 rounds to the integer n and leaves it in the low bits. Then Cephes' degree-6 polynomial,
// in pairs: a kernel's speed is bound by this chain's latency.
inline vf exp(vf x) {
  x = min(set1(88.3f), max(set1(-87.33654f), x));
  const vf shift = set1(12582912.0f);
  vf t = fma(x, set1(1.44269504088896341f), shift);
  vf n = t - shift;
  vf r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  vf r2 = r * r;
  vf a = fma(set1(1.9875691500e-4f), r, set1(1.3981999507e-3f));
  vf b = fma(set1(8.3334519073e-3f), r, set1(4.1665795894e-2f));
  vf c = fma(set1(1.6666665459e-1f), r, set1(5.0000001201e-1f));
  vf p = fma(fma(a, r2, b), r2, c);
  return scale2_shifted(fma(p, r2, r + set1(1.0f)), t);
}

inline vf sigmoid(vf x) {
  return set1(1.0f) / (set1(1.0f) + exp(zero() - x));
}
inline vf silu(vf x) {
  return x / (set1(1.0f) + exp(zero() - x));
}

// log(1 + e^x), relative error below 3e-7 (tested). With t = e^-|x|: max(x, 0) + log1p(t), and log1p(t) =
// 2 atanh(s) for s = t / (2 + t) <= 1/3, whose odd series is short.
inline vf softplus(vf x) {
  vf t = exp(zero() - abs(x));
  vf s = t / (set1(2.0f) + t);
  vf s2 = s * s;
  vf p = set1(2.0f / 15);
  for (float c : {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f})
    p = fma(p, s2, set1(c));
  return fma(p, s, max(zero(), x));
}

}  // namespace MN_ISA
}  // namespace mn
