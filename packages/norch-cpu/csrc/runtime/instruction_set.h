#pragma once

namespace norch {

/// The best instruction set of those in CMakeLists.txt that this processor has.
inline const char* instruction_set() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("f16c");
    if (!has_avx2) return "baseline";
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return has_avx512 ? "avx512" : "avx2";
#else
    return "baseline";
#endif
}

}  // namespace norch
