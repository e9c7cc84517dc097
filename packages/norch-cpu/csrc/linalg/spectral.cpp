// Eigenvalues of symmetric matrices, and singular values: by Jacobi's methods; values alone by bisection.
#include "linalg/householder.h"
#include "linalg/jacobi.h"
#include "linalg/one_by_one.h"
#include "linalg/tridiagonal.h"

namespace norch::linalg {
namespace {

constexpr int64_t MOST_EIGEN_ROWS = 8;  // of a single matrix, which is one lane of several
// Of more rows LAPACK's reduction to two diagonals is quicker, and of values alone sooner.
constexpr int64_t MOST_BISECTED_BYTES = 512;  // of a row
constexpr int64_t MOST_SINGULAR_ROWS = 48, MOST_ROWS_OF_VALUES = 16;

template <class V>
void set_identity(V* x, int64_t n) {
    for (int64_t i = 0; i < n * n; ++i) x[i] = V{} + lane_t<V>(i % (n + 1) == 0);
}
template <class V>
void transpose(V* to, const V* from, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

/// Operands: values, info, a.
[[gnu::cold]] KernelPtr eigenvalues(const Request& request) {
    constexpr int64_t WHOLE = 4 * VECTOR_BYTES;
    const Operand& a = request.operands[2];
    const int64_t n = a.shape.back(), row = padded(n, a.dtype);
    const int64_t whole = (n * size_of(a.dtype) + WHOLE - 1) / WHOLE * WHOLE / size_of(a.dtype), room = std::max(row, whole);
    const bool upper = request.attrs.flag("upper");
    const Operand given = matrix_of(a);
    const double ns = 500 + double(size_of(a.dtype)) * double(n * n) * (0.03 * double(n) + double(size_of(a.dtype)));
    return matrix_kernel(request, n * row + 5 * room, ns,
                         [=, copy = copy_kernel(in_rows(given, row), given)]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        T largest = 0, nothing = 0;
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j <= i; ++j) {
                T &below = x[i * row + j], &above = x[j * row + i];
                (upper ? below : above) = upper ? above : below;
                largest = std::max(largest, std::abs(below));
                nothing += below * T(0);
            }
        const bool is_finite = nothing == T(0);
        *reinterpret_cast<int32_t*>(data[1]) = !is_finite;
        T* const out = reinterpret_cast<T*>(data[0]);
        if (!is_finite) return std::fill(out, out + n, std::numeric_limits<T>::quiet_NaN());
        const T scale = scale_of(largest);
        for (int64_t i = 0; i < n * row; ++i) x[i] /= scale;
        T *const d = x + n * row, *const e = d + room, *const v = e + room, *const w = v + room, *const values = w + room;
        tridiagonalise(x, row, n, d, e, v, w);
        bisect(d, e, n, values);
        for (int64_t i = 0; i < n; ++i) out[i] = values[i] * scale;
    });
}

/// Operands: values, the vectors if `has_vectors`, info, a.
[[gnu::cold]] KernelPtr eigen_kernel(const Request& request, bool has_vectors) {
    const size_t input = has_vectors ? 3 : 2;
    if (!suits(request, input)) return nullptr;
    const Operand& a = request.operands[input];
    const int64_t n = a.shape.back();
    Matrices shape = matrices_of(a);
    if (n <= MOST_EIGEN_ROWS) shape.batch = std::max<int64_t>(shape.batch, VECTOR_BYTES);
    if (!suits_lanes(a.dtype, shape))
        return has_vectors || n * size_of(a.dtype) > MOST_BISECTED_BYTES ? nullptr : eigenvalues(request);
    const bool upper = request.attrs.flag("upper");
    return lane_kernel(request, input, 2 * n * n, 20 * double(n * n * n), [=](char* const* data, int64_t batch,
                                                                             int64_t group, auto* x) {
        using V = std::remove_reference_t<decltype(*x)>;
        using T = lane_t<V>;
        V* const vectors = x + n * n;
        read_lanes(data[input], n * n, batch, group, x);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < i; ++j) {
                V &below = x[i * n + j], &above = x[j * n + i];
                (upper ? below : above) = upper ? above : below;
            }
        typename Lanes<T>::I info;
        const V scale = scaled<T>(x, n * n, info);
        set_identity(vectors, n);
        diagonalise<T>(x, int(n), vectors);
        V values[MOST_LANE_ROWS];
        for (int64_t i = 0; i < n; ++i) values[i] = x[i * (n + 1)] * scale;
        write_lanes(data[0], n, batch, group, values);
        write_info(data[input - 1], batch, group, info);
        if (!has_vectors) return;
        transpose(x, vectors, n, n);
        write_lanes(data[1], n * n, batch, group, x);
    });
}

[[gnu::cold]] KernelPtr eigh(const Request& request) { return eigen_kernel(request, true); }
[[gnu::cold]] KernelPtr eigvalsh(const Request& request) { return eigen_kernel(request, false); }

/// The rows of `x`, longest first, become unit vectors; `lengths` what they were multiplied by. V: lanes.
template <class V>
void normalise_lanes(V* x, int64_t n, int64_t width, V* lengths, bool has_vectors) {
    using T = lane_t<V>;
    using S = Lanes<T>;
    for (int64_t i = 0; i < n; ++i) {
        V squares{};
        for (int64_t j = 0; j < width; ++j) squares += x[i * width + j] * x[i * width + j];
        lengths[i] = S::root(squares);
        for (int64_t j = 0; j < width && has_vectors; ++j) x[i * width + j] /= lengths[i];
    }
    for (int l = 0; l < S::L && has_vectors; ++l) {
        int64_t rank = 0;
        while (rank < n && lengths[rank][l] > TINY<T>) ++rank;
        if (rank == n) continue;
        T rows[MOST_LANE_ROWS * MOST_LANE_ROWS];
        for (int64_t i = 0; i < n * width; ++i) rows[i] = x[i][l];
        complete(rows, width, n, width, rank);
        for (int64_t i = 0; i < n * width; ++i) x[i][l] = rows[i];
    }
}

/// Operands: u, values, vh, info, a; without vectors values, info, a. Of a wide matrix the transpose is taken.
[[gnu::cold]] KernelPtr singular_lanes(const Request& request, bool has_vectors) {
    const size_t input = request.operands.size() - 1;
    const Operand& a = request.operands[input];
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back(), k = std::min(m, n), width = std::max(m, n);
    const int64_t vectors = m * n + (has_vectors ? m * n + k * k : m > n ? m * n : 0);
    return lane_kernel(request, input, vectors, 20 * double(k * k * width), [=](char* const* data, int64_t batch,
                                                                               int64_t group, auto* given) {
        using V = std::remove_reference_t<decltype(*given)>;
        using T = lane_t<V>;
        V *const x = m > n ? given + m * n : given, *const spare = m > n ? given : given + m * n;
        V* const turned = has_vectors ? given + 2 * m * n : nullptr;
        read_lanes(data[input], m * n, batch, group, given);
        if (m > n) transpose(x, given, m, n);
        typename Lanes<T>::I info;
        const V scale = scaled<T>(x, m * n, info);
        if (has_vectors) set_identity(turned, k);
        const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(width));
        orthogonalise<ManyMatrices<T>>(x, int(k), int(width), turned, int(k), tolerance);
        V lengths[MOST_LANE_ROWS];
        normalise_lanes(x, k, width, lengths, has_vectors);
        for (int64_t i = 0; i < k; ++i) lengths[i] *= scale;
        write_lanes(data[has_vectors ? 1 : 0], k, batch, group, lengths);
        write_info(data[input - 1], batch, group, info);
        if (!has_vectors) return;
        write_lanes(data[2], k * n, batch, group, m > n ? turned : x);
        transpose(spare, m > n ? x : turned, k, m);
        write_lanes(data[0], m * k, batch, group, spare);
    });
}

/// The rows of a matrix by QR factors first, and those of R by rotations.
[[gnu::cold]] KernelPtr singular_matrices(const Request& request, bool has_vectors) {
    const size_t input = request.operands.size() - 1;
    const Operand& a = request.operands[input];
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back(), k = std::min(m, n), width = std::max(m, n);
    const int64_t row = padded(k, a.dtype), lanes = VECTOR_BYTES / size_of(a.dtype), whole = (k + lanes - 1) / lanes * lanes;
    Operand given = matrix_of(a);
    if (m < n) given = transposed(given);
    return matrix_kernel(request, 2 * (width * row + k * whole), 1000 + 20 * double(k * k * width),
                         [=, copy = copy_kernel(in_rows(given, row), given)]<class T>(char* const* data, T* x) {
        using V = typename Lanes<T>::V;
        T *const to = x + width * row, *const r = to + width * row, *const turned = r + k * whole;
        T *const values = reinterpret_cast<T*>(data[has_vectors ? 1 : 0]);
        int32_t& info = *reinterpret_cast<int32_t*>(data[input - 1]);
        run_copy(*copy, reinterpret_cast<char*>(x), data[input]);
        T largest = 0, nothing = 0;
        for (int64_t i = 0; i < width * row; ++i) {
            largest = std::max(largest, std::abs(x[i]));
            nothing += x[i] * T(0);
        }
        info = nothing != T(0);
        if (info) std::fill(x, x + width * row, T(0));
        const T scale = info ? T(1) : scale_of(largest);
        for (int64_t i = 0; i < width * row; ++i) x[i] /= scale;
        Reflections<T> reflections(x, row, width, k, k);
        for (int64_t i = 0; i < k; ++i) std::copy(x + i * row + i, x + i * row + k, r + i * whole + i);
        for (int64_t i = 0; i < k; ++i) turned[i * whole + i] = T(1);
        const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(k));
        const int vectors = int(whole / Lanes<T>::L);
        orthogonalise<OneMatrix<T>>(reinterpret_cast<V*>(r), int(k), vectors,
                                    has_vectors ? reinterpret_cast<V*>(turned) : nullptr, vectors, tolerance);
        int64_t rank = 0;
        for (int64_t i = 0; i < k; ++i) {
            T squares = 0;
            for (int64_t j = 0; j < k; ++j) squares += r[i * whole + j] * r[i * whole + j];
            const T length = std::sqrt(squares);
            values[i] = length * scale;
            if (!(length > TINY<T>)) continue;
            rank = i + 1;
            for (int64_t j = 0; j < k; ++j) r[i * whole + j] /= length;
        }
        if (!has_vectors) return;
        complete(r, whole, k, k, rank);
        for (int64_t i = 0; i < k; ++i)
            for (int64_t j = 0; j < k; ++j) to[j * row + i] = turned[i * whole + j];
        reflections.apply_to(to, row, k, false);
        T *const u = reinterpret_cast<T*>(data[0]), *const vh = reinterpret_cast<T*>(data[2]);
        // The rows of r are those of vh, and what is in `to` is u; or the other way round, transposed.
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < k; ++j) u[i * k + j] = m < n ? r[j * whole + i] : to[i * row + j];
        for (int64_t i = 0; i < k; ++i)
            for (int64_t j = 0; j < n; ++j) vh[i * n + j] = m < n ? to[j * row + i] : r[i * whole + j];
    });
}

[[gnu::cold]] KernelPtr singular_kernel(const Request& request, bool has_vectors) {
    const size_t input = request.operands.size() - 1;
    const Operand& a = request.operands[input];
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back();
    if (!suits(request, input) || std::min(m, n) > (has_vectors ? MOST_SINGULAR_ROWS : MOST_ROWS_OF_VALUES))
        return nullptr;
    if (has_vectors && m != n && request.attrs.flag("full_matrices")) return nullptr;
    Matrices shape = matrices_of(a);
    shape.rows = std::max(m, n);
    return suits_lanes(a.dtype, shape) ? singular_lanes(request, has_vectors) : singular_matrices(request, has_vectors);
}

[[gnu::cold]] KernelPtr svd(const Request& request) { return singular_kernel(request, true); }
[[gnu::cold]] KernelPtr svdvals(const Request& request) { return singular_kernel(request, false); }

}  // namespace

void add_spectral(Registry& registry) {
    registry["linalg_eigh"] = eigh;
    registry["linalg_eigvalsh"] = eigvalsh;
    registry["linalg_svd"] = svd;
    registry["linalg_svdvals"] = svdvals;
}

}  // namespace norch::linalg
