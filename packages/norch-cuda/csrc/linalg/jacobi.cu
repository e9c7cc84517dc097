// Singular values of matrices that fit in shared memory, a block for each: one-sided rotations (M. Hestenes, "Inversion
// of matrices by biorthogonalization and related results", 1958; G. Golub and C. Van Loan, "Matrix Computations", 8.6.3).
#include "linalg/jacobi.h"

#include <cfloat>

#include "runtime/device.cuh"

namespace norch::linalg {
namespace {

constexpr size_t LARGEST = 200 << 10;  // bytes of a matrix and its rotations, where a block gets as many
constexpr int SWEEPS = 60;

template <class T>
__device__ T warp_sum(T x) {
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/// The larger one; NaN where one is that.
template <class T>
__device__ T larger(T a, T b) {
    return a != a || a >= b ? a : b;
}

template <class T>
constexpr T TINY = sizeof(T) == 4 ? T(1e-17) : T(1e-150);  // what is shorter has no direction; its square is a number

/// The largest number of a warp, and where it was found.
template <class T>
__device__ void warp_argmax(T& x, int& at) {
    for (int step = 16; step; step /= 2) {
        const T other = __shfl_xor_sync(~0u, x, step);
        const int place = __shfl_xor_sync(~0u, at, step);
        if (other > x || (other == x && place < at)) x = other, at = place;
    }
}

template <class T>
struct Task {
    const T* given;
    T *values, *u, *vh;  // the vectors null where they are not wanted
    int32_t* info;
    int m, n;
};

/// Rotates columns p and q of w (rows), and of v (size) if there is one, until they are orthogonal. A warp's work; returns
/// whether there was something to do.
template <class T>
__device__ bool rotate(T* p, T* q, int rows, T* vp, T* vq, int size, T tolerance) {
    const int lane = threadIdx.x % 32;
    T a = 0, b = 0, dot = 0;
    for (int i = lane; i < rows; i += 32) {
        const T x = p[i], y = q[i];
        a += x * x, b += y * y, dot += x * y;
    }
    a = warp_sum(a), b = warp_sum(b), dot = warp_sum(dot);
    const T least = TINY<T> * TINY<T>;
    if (!(a > least) || !(b > least) || !(abs(dot) > tolerance * sqrt(a) * sqrt(b))) return false;
    const T zeta = (b - a) / (2 * dot), size_of_zeta = abs(zeta);  // whose square must not overflow
    const T root = size_of_zeta < T(1e9) ? size_of_zeta + sqrt(1 + zeta * zeta) : 2 * size_of_zeta;
    const T tangent = copysign(1 / root, zeta);
    const T c = 1 / sqrt(1 + tangent * tangent), s = c * tangent;
    auto turn = [&](T* x, T* y, int count) {
        for (int i = lane; i < count; i += 32) {
            const T old = x[i];
            x[i] = c * old - s * y[i];
            y[i] = s * old + c * y[i];
        }
    };
    turn(p, q, rows);
    if (vp) turn(vp, vq, size);
    return true;
}

/// Columns of length 0 become such that all are orthonormal. A warp's work.
template <class T>
__device__ void complete(T* w, T* lengths, int rows, int count) {
    const int lane = threadIdx.x % 32;
    for (int z = 0; z < count; ++z) {
        if (lengths[z] != 0) continue;
        T most = -1;
        int at = 0;
        for (int i = lane; i < rows; i += 32) {  // the axis that the others are farthest from
            T rest = 1;
            for (int c = 0; c < count; ++c)
                if (lengths[c] != 0) rest -= w[c * rows + i] * w[c * rows + i];
            if (rest > most) most = rest, at = i;
        }
        warp_argmax(most, at);
        T* const x = w + z * rows;
        for (int i = lane; i < rows; i += 32) x[i] = i == at;
        for (int turn = 0; turn < 3; ++turn) {
            for (int c = 0; turn < 2 && c < count; ++c) {
                if (lengths[c] == 0) continue;
                T dot = 0;
                for (int i = lane; i < rows; i += 32) dot += w[c * rows + i] * x[i];
                dot = warp_sum(dot);
                for (int i = lane; i < rows; i += 32) x[i] -= dot * w[c * rows + i];
            }
            T squares = 0;
            for (int i = lane; i < rows; i += 32) squares += x[i] * x[i];
            const T length = sqrt(warp_sum(squares));
            for (int i = lane; i < rows; i += 32) x[i] /= length;
        }
        __syncwarp();
        if (lane == 0) lengths[z] = 1;
        __syncwarp();
    }
}

/// Of a wide matrix the transpose is taken: `rows` >= `count`, the columns that are made orthogonal.
template <class T>
__global__ void __launch_bounds__(512) jacobi(const __grid_constant__ Task<T> task) {
    extern __shared__ double memory[];
    __shared__ T parts[16];
    __shared__ int is_rotated, order_of[512];
    const int m = task.m, n = task.n, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const bool is_wide = m < n, has_vectors = task.u != nullptr;
    const int rows = is_wide ? n : m, count = is_wide ? m : n;
    const int64_t matrix = blockIdx.x;
    T *w = reinterpret_cast<T*>(memory), *lengths = w + rows * count, *v = lengths + count;
    const T* given = task.given + matrix * m * n;
    T largest = 0;
    for (int i = threadIdx.x; i < m * n; i += blockDim.x) {
        const T x = given[i];
        w[is_wide ? i : i % n * m + i / n] = x;
        largest = larger(largest, abs(x));
    }
    for (int step = 16; step; step /= 2) largest = larger(largest, __shfl_xor_sync(~0u, largest, step));
    if (lane == 0) parts[warp] = largest;
    if (has_vectors)
        for (int i = threadIdx.x; i < count * count; i += blockDim.x) v[i] = i / count == i % count;
    __syncthreads();
    for (int i = 0; i < warps; ++i) largest = larger(largest, parts[i]);
    const T scale = largest > 0 ? largest : T(1);
    for (int i = threadIdx.x; i < m * n; i += blockDim.x) w[i] /= scale;
    const T epsilon = sizeof(T) == 4 ? T(FLT_EPSILON) : T(DBL_EPSILON);
    const T tolerance = epsilon * sqrt(T(rows));
    const int even = count + count % 2;
    bool is_done = !(largest <= (sizeof(T) == 4 ? T(FLT_MAX) : T(DBL_MAX)));  // not finite: there is no answer
    int32_t failed = is_done;
    for (int sweep = 0; !is_done; ++sweep) {
        __syncthreads();
        if (threadIdx.x == 0) is_rotated = 0;
        __syncthreads();
        for (int round = 0; round < even - 1; ++round) {  // as in a tournament: all pairs of a round have other columns
            for (int pair = warp; pair < even / 2; pair += warps) {
                const int p = pair ? (round + pair) % (even - 1) : even - 1;
                const int q = pair ? (round - pair + even - 1) % (even - 1) : round;
                if (p >= count || q >= count) continue;
                const bool rotated = rotate(w + p * rows, w + q * rows, rows, has_vectors ? v + p * count : nullptr,
                                            v + q * count, count, tolerance);
                if (rotated && lane == 0) is_rotated = 1;
            }
            __syncthreads();
        }
        is_done = !is_rotated || sweep == SWEEPS;
        failed = is_rotated != 0;
    }
    __syncthreads();
    for (int c = warp; c < count; c += warps) {
        T squares = 0;
        for (int i = lane; i < rows; i += 32) squares += w[c * rows + i] * w[c * rows + i];
        const T length = sqrt(warp_sum(squares));
        for (int i = lane; i < rows; i += 32) w[c * rows + i] = length > TINY<T> ? w[c * rows + i] / length : T(0);
        if (lane == 0) lengths[c] = length > TINY<T> ? length : T(0);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < count; c += blockDim.x) {
        int place = 0;
        for (int d = 0; d < count; ++d) place += lengths[d] > lengths[c] || (lengths[d] == lengths[c] && d < c);
        order_of[place] = c;
        task.values[matrix * count + place] = lengths[c] * scale;
    }
    if (threadIdx.x == 0) task.info[matrix] = failed;
    if (!has_vectors) return;
    __syncthreads();
    if (warp == 0 && !failed) complete(w, lengths, rows, count);
    __syncthreads();
    T *u = task.u + matrix * m * count, *vh = task.vh + matrix * n * count;
    for (int i = threadIdx.x; i < m * count; i += blockDim.x) {
        const int c = order_of[i % count], row = i / count;
        u[i] = is_wide ? v[c * count + row] : w[c * rows + row];
    }
    for (int i = threadIdx.x; i < n * count; i += blockDim.x) {
        const int c = order_of[i / n], column = i % n;
        vh[i] = is_wide ? w[c * rows + column] : v[c * count + column];
    }
}

template <class T>
void launch(const Task<T>& task, int64_t batch, size_t shared) {
    static size_t most[64];
    const int device = launch_stream().device;
    if (device >= 64 || most[device] < shared) {
        check(cudaFuncSetAttribute(jacobi<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), "singular values");
        if (device < 64) most[device] = shared;
    }
    const int pairs = (std::min(task.m, task.n) + 1) / 2;
    launch_kernel("singular values", jacobi<T>, Grid{unsigned(batch), unsigned(32 * std::clamp(pairs, 1, 16)), shared}, task);
}

size_t bytes_for(DType dtype, Matrices shape, bool vectors) {
    const int64_t k = std::min(shape.rows, shape.columns);
    return size_t((shape.rows * shape.columns + k + (vectors ? k * k : 0)) * size_of(dtype));
}

}  // namespace

bool fits_jacobi(DType dtype, Matrices shape, bool vectors) {
    return std::min(shape.rows, shape.columns) <= 512 &&
           bytes_for(dtype, shape, vectors) <= std::min(LARGEST, properties(launch_stream().device).shared_bytes);
}

void run_jacobi(DType dtype, Matrices shape, const char* a, char* values, char* u, char* vh, int32_t* info) {
    const size_t shared = bytes_for(dtype, shape, u != nullptr);
    const int m = int(shape.rows), n = int(shape.columns);
    auto start = [&]<class T>(T) {
        launch(Task<T>{reinterpret_cast<const T*>(a), reinterpret_cast<T*>(values), reinterpret_cast<T*>(u),
                       reinterpret_cast<T*>(vh), info, m, n}, shape.batch, shared);
    };
    if (dtype == DType::f64) start(double());
    else start(float());
}

}  // namespace norch::linalg
