// Array types at the Python boundary and the checks made there. Kernels trust what passed them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <string>

namespace mn {
namespace nb = nanobind;

// Inputs may be read-only; outputs must be writable. All are C-contiguous in CPU memory.
template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

inline void require(bool ok, const std::string& message) {
  if (!ok) throw nb::value_error(message.c_str());
}

template <class A>
std::string shape_text(const A& array) {
  std::string text = "[";
  for (size_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
  return text + "]";
}

// Throws ValueError "name: expected shape [a, b], got [c, d]" unless the shape is exactly that.
template <class A>
void require_shape(const A& array, std::initializer_list<int64_t> shape, const char* name) {
  bool same = array.ndim() == shape.size();
  size_t i = 0;
  for (int64_t n : shape) {
    if (same && static_cast<int64_t>(array.shape(i)) != n) same = false;
    ++i;
  }
  if (same) return;
  std::string wanted = "[";
  i = 0;
  for (int64_t n : shape) wanted += (i++ ? ", " : "") + std::to_string(n);
  require(false, std::string(name) + ": expected shape " + wanted + "], got " + shape_text(array));
}

}  // namespace mn
