// The SIMD types of the instruction set that this file is compiled for. One header an instruction set;
// all of them define the same names in namespace mn::MN_ISA.
#pragma once
#if defined(MN_ISA_avx2)
#include "simd/avx2.hpp"
#elif defined(MN_ISA_neon) || defined(MN_ISA_neon_dot)
#include "simd/neon.hpp"
#else
#include "simd/generic.hpp"
#endif
#include "simd/math.hpp"
