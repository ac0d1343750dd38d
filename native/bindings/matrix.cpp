#include "bindings/matrix.hpp"

#include <nanobind/stl/string.h>

#include "bindings/bindings.hpp"

namespace mn {
namespace {

void require_size(int64_t rows, int64_t cols) {
  require(rows >= 1 && cols >= 1 && rows < (int64_t{1} << 40) && cols < (int64_t{1} << 40),
          "rows and cols: expected at least 1 each, got " + std::to_string(rows) + " and " +
              std::to_string(cols));
}

template <class T>
void require_aligned(const T* data, const char* name) {
  require(reinterpret_cast<uintptr_t>(data) % alignof(T) == 0,
          std::string(name) + ": expected data aligned to " + std::to_string(alignof(T)) + " bytes");
}

// [inner...] or [count, inner...]; returns the count.
template <class A>
int64_t require_stack(const A& array, int64_t a, int64_t b, int64_t c, const char* name) {
  const size_t inner = c ? 3 : 2;
  const size_t skip = array.ndim() == inner + 1 ? 1 : 0;
  const int64_t count = skip ? static_cast<int64_t>(array.shape(0)) : 1;
  bool same = (array.ndim() == inner || skip) && count >= 1;
  const int64_t wanted[3] = {a, b, c};
  for (size_t i = 0; same && i < inner; ++i) same = static_cast<int64_t>(array.shape(i + skip)) == wanted[i];
  std::string text = "[(count,) " + std::to_string(a) + ", " + std::to_string(b);
  if (c) text += ", " + std::to_string(c);
  require(same, std::string(name) + ": expected shape " + text + "], got " + shape_text(array));
  return count;
}

Matrix make_w4(In<uint8_t> data, int64_t rows, int64_t cols) {
  require_size(rows, cols);
  int64_t count = require_stack(data, (rows + 15) / 16, (cols + 31) / 32, 288, "data");
  require_aligned(reinterpret_cast<const uint16_t*>(data.data()), "data");
  return {WeightFormat::w4,
          rows,
          cols,
          count,
          static_cast<int64_t>(data.nbytes()),
          {data.data()},
          nullptr,
          {nb::ndarray<>(data.handle())}};
}

Matrix make_w8(In<int8_t> data, In<float> scales, int64_t rows, int64_t cols) {
  require_size(rows, cols);
  const int64_t panels = (rows + 15) / 16;
  int64_t count = require_stack(data, panels, (cols + 31) / 32 * 8, 64, "data");
  require_aligned(scales.data(), "scales");
  if (data.ndim() == 4)
    require_shape(scales, {count, panels * 16}, "scales");
  else
    require_shape(scales, {panels * 16}, "scales");
  return {WeightFormat::w8,
          rows,
          cols,
          count,
          static_cast<int64_t>(data.nbytes() + scales.nbytes()),
          {data.data()},
          scales.data(),
          {nb::ndarray<>(data.handle()), nb::ndarray<>(scales.handle())}};
}

template <class T>
void add_dense(Matrix& m, nb::handle object) {
  In<T> array;
  require(nb::try_cast<In<T>>(object, array, false),
          std::string("array: expected a C-contiguous array of ") + (sizeof(T) == 4 ? "float32" : "uint16") +
              " for dtype '" + format_name(m.format) + "', got another type or layout");
  require(array.ndim() == 2 || array.ndim() == 3,
          "array: expected [N, K] or [count, N, K], got " + shape_text(array));
  const size_t skip = array.ndim() - 2;
  const int64_t rows = static_cast<int64_t>(array.shape(skip)),
                cols = static_cast<int64_t>(array.shape(skip + 1));
  const int64_t count = skip ? static_cast<int64_t>(array.shape(0)) : 1;
  if (m.data.empty()) {
    m.rows = rows;
    m.cols = cols;
    require_size(rows, cols);
  }
  require(rows == m.rows && cols == m.cols, "array: expected [" + std::to_string(m.rows) + ", " +
                                                std::to_string(m.cols) + "] like the first, got " +
                                                shape_text(array));
  require_aligned(array.data(), "array");
  for (int64_t i = 0; i < count; ++i) m.data.push_back(array.data() + i * rows * cols);
  m.count += count;
  m.nbytes += static_cast<int64_t>(array.nbytes());
  m.owners.push_back(nb::ndarray<>(array.handle()));
}

Matrix make_dense(nb::object arrays, const std::string& dtype) {
  Matrix m{WeightFormat::fp32, 0, 0, 0, 0, {}, nullptr, {}};
  if (dtype == "bf16")
    m.format = WeightFormat::bf16;
  else if (dtype == "fp16")
    m.format = WeightFormat::fp16;
  else
    require(dtype == "fp32", "dtype: expected 'fp32', 'bf16' or 'fp16', got '" + dtype + "'");
  auto add = [&](nb::handle object) {
    m.format == WeightFormat::fp32 ? add_dense<float>(m, object) : add_dense<uint16_t>(m, object);
  };
  if (nb::isinstance<nb::list>(arrays) || nb::isinstance<nb::tuple>(arrays)) {
    for (nb::handle object : arrays) add(object);
  } else {
    add(arrays);
  }
  require(m.count >= 1, "arrays: expected at least one");
  return m;
}

}  // namespace

const char* format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::w4:
      return "w4";
    case WeightFormat::w8:
      return "w8";
    case WeightFormat::fp32:
      return "fp32";
    case WeightFormat::bf16:
      return "bf16";
    default:
      return "fp16";
  }
}

std::string describe(const Matrix& m) {
  std::string text = std::string(format_name(m.format)) + " [";
  if (m.count > 1) text += std::to_string(m.count) + ", ";
  return text + std::to_string(m.rows) + ", " + std::to_string(m.cols) + "]";
}

void bind_matrix(nb::module_& m) {
  nb::class_<Matrix>(m, "Matrix", "Weights in a form that the kernels read in place; keeps its arrays alive.")
      .def_static("w4", &make_w4, nb::arg("data").noconvert(), nb::arg("rows"), nb::arg("cols"),
                  "W4 from uint8 [P, Kp/32, 288] or [count, P, Kp/32, 288].")
      .def_static("w8", &make_w8, nb::arg("data").noconvert(), nb::arg("scales").noconvert(), nb::arg("rows"),
                  nb::arg("cols"),
                  "W8 from int8 [(count,) P, Kp/4, 64] and float32 scales [(count,) P * 16].")
      .def_static("dense", &make_dense, nb::arg("arrays"), nb::arg("dtype"),
                  "Row-major [N, K], [count, N, K] or a list of [N, K]: float32, or uint16 holding BF16 or "
                  "FP16 bits.")
      .def_ro("rows", &Matrix::rows)
      .def_ro("cols", &Matrix::cols)
      .def_ro("count", &Matrix::count)
      .def_ro("nbytes", &Matrix::nbytes)
      .def_prop_ro("format", [](const Matrix& self) { return std::string(format_name(self.format)); })
      .def("__repr__", [](const Matrix& self) { return "Matrix(" + describe(self) + ")"; });
}

}  // namespace mn
