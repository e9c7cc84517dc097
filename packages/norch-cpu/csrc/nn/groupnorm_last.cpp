// group_norm and its gradient of images whose channels lie next to each other, in float32: sums by channel go along pixels, some
// of them at a time, then a group's are added up.
#include "common/image_layout.h"
#include "nn/normalization.h"

namespace norch::nn {
namespace {

constexpr int L = SIMD_WIDTH<float>;
using Floats = vector_t<float, L>;

constexpr double ELEMENT_NS = 0.2;
constexpr int64_t PIXELS = 256;  // at a time: sums of so many are taken as they are, and go on in double

struct Shape {
    explicit Shape(const Request& request)
        : batch(request.operands[0].shape[0]), channels(request.operands[0].shape[1]),
          inner(request.operands[0].numel() / batch / channels), groups(request.attrs.integer("num_groups")),
          dtype(request.operands[0].dtype) {}
    int64_t own() const { return channels / groups; }  // channels of a group
    int64_t blocks() const { return (inner + PIXELS - 1) / PIXELS; }
    double group_size() const { return double(own() * inner); }
    bool is_float() const { return dtype == DType::f32; }

    int64_t batch, channels, inner, groups;
    DType dtype;
};

/// Some pixels of an image.
struct Pixels {
    int64_t image, block, first, count;
};

/// Calls f for blocks of pixels, in threads.
template <class F>
void for_blocks(const Shape& s, double passes, const F& f) {
    parallel_for(s.batch * s.blocks(), passes * ELEMENT_NS * double(std::min(PIXELS, s.inner) * s.channels), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % s.blocks() * PIXELS;
            f(Pixels{i / s.blocks(), i, first, std::min(PIXELS, s.inner - first)});
        }
    });
}

char* at(char* data, const Shape& s, const Pixels& p) { return data + (p.image * s.inner + p.first) * s.channels * size_of(s.dtype); }

/// Room for pixels of another dtype.
int64_t room_for(const Shape& s, const Pixels& p) { return s.is_float() ? 1 : p.count * s.channels; }

/// Pixels as float32: themselves, or a copy at `room`.
const float* taken(char* data, const Shape& s, const Pixels& p, float* room) {
    char* x = at(data, s, p);
    if (s.is_float()) return reinterpret_cast<const float*>(x);
    convert_line(x, s.dtype, p.count * s.channels, reinterpret_cast<char*>(room), DType::f32);
    return room;
}

/// Where pixels are written, and from there to their place.
float* place_for(char* data, const Shape& s, const Pixels& p, float* room) {
    return s.is_float() ? reinterpret_cast<float*>(at(data, s, p)) : room;
}
void put(char* data, const Shape& s, const Pixels& p, float* room) {
    if (!s.is_float()) convert_line(reinterpret_cast<char*>(room), DType::f32, p.count * s.channels, at(data, s, p), s.dtype);
}

/// sums[c] = the sum of f(k, c), for SUMS things, over the pixels k; f is given L channels from c on as vectors, or one.
template <int SUMS, class F>
void sum_pixels(int64_t count, int64_t channels, const F& f, double* sums) {
    constexpr int V = 4 / SUMS;
    const auto columns = [&]<int N, class X>(int64_t c, std::integral_constant<int, N>, X) NORCH_INLINE_LAMBDA {
        X found[SUMS][N] = {};
        for (int64_t k = 0; k < count; ++k) {
            NORCH_UNROLL
            for (int v = 0; v < N; ++v) {
                const std::array<X, SUMS> more = f(k * channels + c + v * L, c + v * L, X());
                NORCH_UNROLL
                for (int j = 0; j < SUMS; ++j) found[j][v] += more[size_t(j)];
            }
        }
        for (int j = 0; j < SUMS; ++j) {
            constexpr int64_t ALL = N * int64_t(sizeof(X) / sizeof(float));
            float all[ALL];
            std::memcpy(all, found[j], sizeof all);
            for (int64_t i = 0; i < ALL; ++i) sums[j * channels + c + i] = double(all[i]);
        }
    };
    int64_t c = 0;
    for (; c + V * L <= channels; c += V * L) columns(c, std::integral_constant<int, V>(), Floats());
    for (; c + L <= channels; c += L) columns(c, std::integral_constant<int, 1>(), Floats());
    if (c < channels && channels > L) columns(channels - L, std::integral_constant<int, 1>(), Floats()), c = channels;
    for (; c < channels; ++c) columns(c, std::integral_constant<int, 1>(), 0.0f);
}

/// What lies at p, as the second parameter's type.
NORCH_INLINE float take(const float* p, float) { return *p; }
NORCH_INLINE Floats take(const float* p, Floats) { return load_vector<L>(p); }

/// The mean and the variance of each image's groups, means by channel too.
struct GroupStatistics {
    GroupStatistics(const Shape& s, char* data)
        : centres(s.batch * s.groups), means(s.batch * s.channels), variances(s.batch * s.groups) {
        const Scratch<double> sums(s.batch * s.blocks() * s.channels);
        // Numbers less those of the first pixel, whose sum is small.
        for (int64_t n = 0; n < s.batch; ++n)
            convert_line(at(data, s, {n, 0, 0, 1}), s.dtype, s.channels, reinterpret_cast<char*>(means.data() + n * s.channels), DType::f32);
        add_up<1>(s, data, sums.data());
        for_groups(s, sums.data(), [&](int64_t group, int64_t first, double sum) {
            for (int64_t c = 0; c < s.own(); ++c) sum += double(means[first + c]) * double(s.inner);
            centres[group] = Mean<float>(sum / s.group_size());
        });
        for (int64_t i = 0; i < s.batch * s.channels; ++i) means[i] = centres[i / s.own()].rounded;
        add_up<2>(s, data, sums.data());
        for_groups(s, sums.data(), [&](int64_t group, int64_t, double sum) { variances[group] = centres[group].variance(sum / s.group_size()); });
    }

    Scratch<Mean<float>> centres;
    Scratch<float> means;
    Scratch<double> variances;

private:
    /// By block and channel the sums of numbers less `means`, or of their squares.
    template <int POWER>
    void add_up(const Shape& s, char* data, double* sums) {
        for_blocks(s, 1, [&](const Pixels& p) {
            const Scratch<float> room(room_for(s, p));
            const float *x = taken(data, s, p, room.data()), *mean = means.data() + p.image * s.channels;
            sum_pixels<1>(p.count, s.channels, [=]<class X>(int64_t i, int64_t c, X like) NORCH_INLINE_LAMBDA {
                const X away = take(x + i, like) - take(mean + c, like);
                return std::array<X, 1>{POWER == 1 ? away : away * away};
            }, sums + p.block * s.channels);
        });
    }

    template <class F>
    static void for_groups(const Shape& s, const double* sums, const F& f) {
        for (int64_t group = 0; group < s.batch * s.groups; ++group) {
            const int64_t image = group / s.groups, channel = group % s.groups * s.own();
            double sum = 0;
            for (int64_t b = image * s.blocks(); b < (image + 1) * s.blocks(); ++b)
                for (int64_t c = 0; c < s.own(); ++c) sum += sums[b * s.channels + channel + c];
            f(group, group * s.own(), sum);
        }
    }
};

[[gnu::cold]] KernelPtr forward(const Request& request) {
    const auto& given = request.attrs.integers("given");
    const size_t weight = given[1] ? 2 : 0, bias = given[2] ? 2 + size_t(given[1]) : 0;
    const DType of_weight = request.operands[weight].dtype, of_bias = request.operands[bias].dtype;
    const double eps = request.attrs.number("eps");
    const Shape s(request);
    return make_kernel(3 * ELEMENT_NS * double(request.operands[0].numel()), [=](char* const* data, const Scalar*) {
        const Parameter<float> w(weight ? data[weight] : nullptr, of_weight, s.channels), b(bias ? data[bias] : nullptr, of_bias, s.channels);
        const GroupStatistics found(s, data[1]);
        const Scratch<float> scales(s.batch * s.channels), shifts(s.batch * s.channels);
        for (int64_t i = 0; i < s.batch * s.channels; ++i) {
            const int64_t c = i % s.channels, group = i / s.own();
            const double scale = (w.data() ? double(w.data()[c]) : 1) / std::sqrt(found.variances[group] + eps);
            scales[i] = float(scale);
            shifts[i] = float((b.data() ? double(b.data()[c]) : 0) - found.centres[group].off * scale);
        }
        for_blocks(s, 1, [&](const Pixels& p) {
            const Scratch<float> room(room_for(s, p));
            const float* x = taken(data[1], s, p, room.data());
            float* out = place_for(data[0], s, p, room.data());
            const int64_t own = p.image * s.channels;
            const float *mean = found.means.data() + own, *scale = scales.data() + own, *shift = shifts.data() + own;
            for (int64_t k = 0; k < p.count; ++k, x += s.channels, out += s.channels) {
                NORCH_INDEPENDENT
                for (int64_t c = 0; c < s.channels; ++c) out[c] = (x[c] - mean[c]) * scale[c] + shift[c];
            }
            put(data[0], s, p, room.data());
        });
    });
}

[[gnu::cold]] KernelPtr backward(const Request& request) {
    const size_t weight = request.attrs.integers("given")[2] ? 5 : 0;
    const DType of_weight = request.operands[weight].dtype;
    const double eps = request.attrs.number("eps");
    const Shape s(request);
    return make_kernel(6 * ELEMENT_NS * double(request.operands[0].numel()), [=](char* const* data, const Scalar*) {
        const Parameter<float> w(weight ? data[weight] : nullptr, of_weight, s.channels);
        const GroupStatistics found(s, data[4]);
        // By block and channel: of gradients times numbers less the mean, and of gradients.
        const Scratch<double> sums(s.batch * s.blocks() * 2 * s.channels);
        for_blocks(s, 1.5, [&](const Pixels& p) {
            const Scratch<float> x_room(room_for(s, p)), g_room(room_for(s, p));
            const float *x = taken(data[4], s, p, x_room.data()), *g = taken(data[3], s, p, g_room.data());
            const float * mean = found.means.data() + p.image * s.channels;
            sum_pixels<2>(p.count, s.channels, [=]<class X>(int64_t i, int64_t c, X like) NORCH_INLINE_LAMBDA {
                const X slope = take(g + i, like);
                return std::array<X, 2>{slope * (take(x + i, like) - take(mean + c, like)), slope};
            }, sums.data() + p.block * 2 * s.channels);
        });
        const Scratch<float> shifts(s.batch * s.channels), slopes(s.batch * s.channels), scales(s.batch * s.channels);
        const Scratch<double> to_weight(s.channels), to_bias(s.channels);
        std::fill_n(to_weight.data(), s.channels, 0.0), std::fill_n(to_bias.data(), s.channels, 0.0);
        for (int64_t group = 0; group < s.batch * s.groups; ++group) {
            const int64_t image = group / s.groups, channel = group % s.groups * s.own();
            const double off = found.centres[group].off, factor = 1 / std::sqrt(found.variances[group] + eps);
            double all = 0, along = 0;
            for (int64_t c = channel; c < channel + s.own(); ++c) {
                double product = 0, sum = 0;
                for (int64_t b = image * s.blocks(); b < (image + 1) * s.blocks(); ++b)
                    product += sums[b * 2 * s.channels + c], sum += sums[(b * 2 + 1) * s.channels + c];
                product -= off * sum;
                const double by = w.data() ? double(w.data()[c]) : 1;
                to_weight[c] += product * factor, to_bias[c] += sum;
                along += by * product, all += by * sum;
            }
            const double tilt = along / s.group_size() * factor * factor;
            for (int64_t i = group * s.own(); i < (group + 1) * s.own(); ++i) {
                shifts[i] = float(all / s.group_size() - off * tilt), slopes[i] = float(tilt);
                scales[i] = s.group_size() == 1 ? float(0) : float(factor);  // one element is normalised to 0, whatever it is
            }
        }
        for (int64_t c = 0; c < s.channels; ++c) {
            reinterpret_cast<float*>(data[1])[c] = float(to_weight[c]);
            reinterpret_cast<float*>(data[2])[c] = float(to_bias[c]);
        }
        for_blocks(s, 1.5, [&](const Pixels& p) {
            const Scratch<float> x_room(room_for(s, p)), g_room(room_for(s, p));
            const float *x = taken(data[4], s, p, x_room.data()), *g = taken(data[3], s, p, g_room.data());
            float* out = place_for(data[0], s, p, x_room.data());
            const int64_t own = p.image * s.channels;
            const float *mean = found.means.data() + own, *shift = shifts.data() + own, *slope = slopes.data() + own;
            const float *scale = scales.data() + own, *by = w.data();
            for (int64_t k = 0; k < p.count; ++k, x += s.channels, g += s.channels, out += s.channels) {
                if (by) {
                    NORCH_INDEPENDENT
                    for (int64_t c = 0; c < s.channels; ++c) out[c] = (g[c] * by[c] - shift[c] - (x[c] - mean[c]) * slope[c]) * scale[c];
                } else {
                    NORCH_INDEPENDENT
                    for (int64_t c = 0; c < s.channels; ++c) out[c] = (g[c] - shift[c] - (x[c] - mean[c]) * slope[c]) * scale[c];
                }
            }
            put(data[0], s, p, x_room.data());
        });
    });
}

}  // namespace

[[gnu::cold]] KernelPtr group_norm_last(const Request& request, int outputs, int images) {
    const auto& operands = request.operands;
    const DType dtype = operands[0].dtype;
    if (!operands[0].numel() || !fits(request, operands[0]) || (dtype != DType::f32 && !is_half(dtype))) return nullptr;
    for (size_t i = 0; i < operands.size(); ++i) {
        const bool is_image = i == 0 || (int(i) >= outputs && int(i) < outputs + images);
        if (is_image ? operands[i].ndim() != 4 || !is_channels_last(operands[i]) || operands[i].dtype != dtype
                     : !operands[i].is_contiguous())
            return nullptr;
    }
    return outputs == 1 ? forward(request) : backward(request);
}

}  // namespace norch::nn
