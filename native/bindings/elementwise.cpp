#include "kernels/elementwise.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bindings/bindings.hpp"

namespace mn {
namespace {

using AnyTable = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

void embed_rows(In<int64_t> ids, AnyTable table, std::optional<In<float>> scales, const std::string& dtype,
                Out<float> out) {
  require(ids.ndim() == 1, "ids: expected [rows], got " + shape_text(ids));
  require(table.ndim() == 2, "table: expected [vocabulary, width], got " + shape_text(table));
  int64_t rows = ids.shape(0), vocabulary = table.shape(0), width = table.shape(1);
  require_shape(out, {rows, width}, "out");
  TableType type;
  nb::dlpack::dtype wanted;
  if (dtype == "fp32") {
    type = TableType::fp32, wanted = nb::dtype<float>();
  } else if (dtype == "bf16" || dtype == "fp16") {
    type = dtype == "bf16" ? TableType::bf16 : TableType::fp16, wanted = nb::dtype<uint16_t>();
  } else {
    require(dtype == "int8", "dtype: expected fp32, bf16, fp16 or int8, got " + dtype);
    type = TableType::int8, wanted = nb::dtype<int8_t>();
    require(scales.has_value(), "scales: int8 needs them, got None");
    require_shape(*scales, {vocabulary}, "scales");
  }
  require(table.dtype() == wanted, "table: its element type is not that of " + dtype);
  for (int64_t i = 0; i < rows; ++i)
    require(ids.data()[i] >= 0 && ids.data()[i] < vocabulary,
            "ids: " + std::to_string(ids.data()[i]) + " is outside 0.." + std::to_string(vocabulary - 1));
  nb::gil_scoped_release release;
  embed({ids.data(), table.data(), scales ? scales->data() : nullptr, out.data(), rows, width, type});
}

Function function_named(const std::string& name) {
  if (name == "exp") return Function::exp;
  if (name == "sigmoid") return Function::sigmoid;
  if (name == "silu") return Function::silu;
  require(name == "softplus", "name: expected exp, sigmoid, silu or softplus, got " + name);
  return Function::softplus;
}

}  // namespace

void bind_elementwise(nb::module_& m) {
  m.def(
      "rms_norm",
      [](In<float> x, In<float> weight, Out<float> y, float eps) {
        require(x.ndim() == 2, "x: expected [rows, width], got " + shape_text(x));
        int64_t rows = x.shape(0), width = x.shape(1);
        require_shape(weight, {width}, "weight");
        require_shape(y, {rows, width}, "y");
        nb::gil_scoped_release release;
        rms_norm({x.data(), weight.data(), y.data(), rows, width, eps});
      },
      nb::arg("x").noconvert(), nb::arg("weight").noconvert(), nb::arg("y").noconvert(), nb::arg("eps"));
  m.def(
      "head_gate",
      [](Out<float> o, In<float> gate) {
        require(o.ndim() == 3, "o: expected [rows, heads, dim], got " + shape_text(o));
        int64_t rows = o.shape(0), heads = o.shape(1), dim = o.shape(2);
        require_shape(gate, {rows, heads}, "gate");
        nb::gil_scoped_release release;
        head_gate({o.data(), gate.data(), rows, heads, dim});
      },
      nb::arg("o").noconvert(), nb::arg("gate").noconvert());
  m.def(
      "apply",
      [](const std::string& name, In<float> x, Out<float> y) {
        Function function = function_named(name);
        require(x.ndim() == 1, "x: expected [count], got " + shape_text(x));
        int64_t count = x.shape(0);
        require_shape(y, {count}, "y");
        nb::gil_scoped_release release;
        apply({function, x.data(), y.data(), count});
      },
      nb::arg("name"), nb::arg("x").noconvert(), nb::arg("y").noconvert());
  m.def(
      "to_half",
      [](In<float> x, const std::string& dtype, Out<uint16_t> y) {
        require(dtype == "bf16" || dtype == "fp16", "dtype: expected bf16 or fp16, got " + dtype);
        require(x.ndim() == 1, "x: expected [count], got " + shape_text(x));
        int64_t count = x.shape(0);
        require_shape(y, {count}, "y");
        nb::gil_scoped_release release;
        to_half({x.data(), y.data(), count, dtype == "bf16"});
      },
      nb::arg("x").noconvert(), nb::arg("dtype"), nb::arg("y").noconvert());
  m.def("embed", &embed_rows, nb::arg("ids").noconvert(), nb::arg("table").noconvert(),
        nb::arg("scales").noconvert().none(), nb::arg("dtype"), nb::arg("out").noconvert());
}

}  // namespace mn
