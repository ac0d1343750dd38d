// Matrix: weights in one of the kernels' forms, used in place; keeps the arrays it was made of alive.
#pragma once
#include <string>
#include <vector>

#include "core/arrays.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_dense.hpp"

namespace mn {

enum class WeightFormat { w4, w8, fp32, bf16, fp16 };

struct Matrix {
  WeightFormat format;
  int64_t rows, cols, count;
  int64_t nbytes;
  std::vector<const void*> data;  // packed: one pointer; dense: one a matrix
  const float* scales = nullptr;  // w8: [count, P * 16]
  std::vector<nb::ndarray<>> owners;

  bool quantized() const { return format == WeightFormat::w4 || format == WeightFormat::w8; }
  PackedWeights packed() const {
    return {format == WeightFormat::w4 ? 4 : 8, static_cast<const uint8_t*>(data[0]), scales, rows, cols};
  }
  Dense dense_type() const {
    return format == WeightFormat::fp32   ? Dense::fp32
           : format == WeightFormat::bf16 ? Dense::bf16
                                          : Dense::fp16;
  }
};

const char* format_name(WeightFormat format);
std::string describe(const Matrix& m);  // "w4 [512, 1536]"

// Checks the three arrays that quantize_rows fills for activations of `cols` inputs.
QuantizedRows quantized_rows(const In<int8_t>& q, const In<float>& scales, const In<int16_t>& pairs,
                             int64_t cols);

}  // namespace mn
