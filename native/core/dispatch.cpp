#include "core/dispatch.hpp"

#include <atomic>

namespace mn {
namespace {

bool has_avx2() {
#if defined(MN_HAVE_AVX2)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

std::atomic<Isa> current{has_avx2() ? Isa::avx2 : Isa::generic};

}  // namespace

Isa isa() {
  return current.load(std::memory_order_relaxed);
}

const char* isa_name() {
  return isa() == Isa::avx2 ? "avx2" : "generic";
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names{"generic"};
  if (has_avx2()) names.push_back("avx2");
  return names;
}

bool set_isa(const std::string& name) {
  if (name == "generic") {
    current = Isa::generic;
  } else if (name == "avx2" && has_avx2()) {
    current = Isa::avx2;
  } else {
    return false;
  }
  return true;
}

}  // namespace mn
