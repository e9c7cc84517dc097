// cuDNN's graphs: operations on tensors are put together, and an engine is chosen that does all of them in one go.
//
//     Graph graph("conv2d");
//     const Descriptor x = graph.tensor(1, {...}), w = graph.tensor(2, {...}), y = graph.tensor(0, {...});
//     Part& how = graph.part(CONVOLUTION);             // what operations refer to
//     how.set(CONVOLUTION_MODE, TYPE_..., 1); ...; how.finalize();
//     Part& op = graph.operation(CONVOLUTION_FORWARD);  // in the order of their data
//     op.set(FORWARD_X, x); ...
//     if (PlanPtr plan = graph.plan(device)) plan->run({{1, data}, {2, weight}, {0, out}});
#pragma once

#include <initializer_list>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "cudnn/library.h"

namespace norch::cudnn {

// cudnnBackendAttributeType_t, of which a value is given
enum Type {
    TYPE_HANDLE = 0,
    TYPE_DATA_TYPE = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_FLOAT = 4,
    TYPE_DOUBLE = 5,
    TYPE_POINTER = 6,
    TYPE_CONVOLUTION_MODE = 7,
    TYPE_HEURISTIC_MODE = 8,
    TYPE_NUMERICAL_NOTE = 11,
    TYPE_POINTWISE_MODE = 14,
    TYPE_DESCRIPTOR = 15,
    TYPE_REDUCTION = 18,
    TYPE_BEHAVIOR_NOTE = 19,
    TYPE_INT32 = 23,
    TYPE_NORM_MODE = 27,
    TYPE_NORM_PHASE = 28,
    TYPE_RNG_DISTRIBUTION = 29,
};

// cudnnBackendNumericalNote_t: what is to be known of an engine's numbers
enum Note {
    TENSOR_CORE = 0,
    DOWN_CONVERT_INPUTS = 1,
    REDUCED_PRECISION_REDUCTION = 2,
    FFT = 3,
    NONDETERMINISTIC = 4,
    WINOGRAD = 5,
};

/// A descriptor of cuDNN's, which belongs to this. It is set, then finalised, then used.
class Part {
public:
    /// type: a cudnnBackendDescriptorType_t. `whose` is the op that errors name.
    Part(int type, std::string whose);
    ~Part();
    Part(Part&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)), whose_(std::move(other.whose_)) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    Part& operator=(Part&&) = delete;

    Descriptor get() const { return descriptor_; }

    /// `attribute` is a cudnnBackendAttributeName_t.
    void set(int attribute, int type, int64_t count, const void* values);
    void set(int attribute, Descriptor value) { set(attribute, TYPE_DESCRIPTOR, 1, &value); }
    void set(int attribute, const Part& value) { set(attribute, value.get()); }
    void set(int attribute, const std::vector<int64_t>& values) {
        set(attribute, TYPE_INT64, int64_t(values.size()), values.data());
    }
    void set(int attribute, int64_t value) { set(attribute, TYPE_INT64, 1, &value); }
    void set(int attribute, float value) { set(attribute, TYPE_FLOAT, 1, &value); }
    void set(int attribute, double value) { set(attribute, TYPE_DOUBLE, 1, &value); }
    void set(int attribute, bool value) { set(attribute, TYPE_BOOLEAN, 1, &value); }
    /// Of an enumeration.
    void set(int attribute, Type type, int value) { set(attribute, type, 1, &value); }
    void finalize();

    /// How many values an attribute has, at most `most` of which are written to `values`.
    int64_t read(int attribute, int type, int64_t most, void* values) const;

private:
    Descriptor descriptor_ = nullptr;
    std::string whose_;
};

/// A tensor as it lies: strides count elements. `alignment`: the bytes that its address is known to be a multiple of.
struct Tensor {
    int type;  // data_type(dtype)
    std::vector<int64_t> shape, strides;
    int64_t alignment = 16;
    bool is_virtual = false;   // between two operations, never in memory
    bool is_by_value = false;  // a number of the host's
};

struct Demands {
    bool is_deterministic = settings.is_deterministic;
    bool is_ieee = false;  // float32 is multiplied as float32
    int64_t most_workspace = int64_t(1) << 30;
};

/// A chosen engine, ready to run on its device. It changes nothing in itself, and holds no memory of the device's.
class Plan {
public:
    using Data = std::initializer_list<std::pair<int64_t, const void*>>;

    Plan(Part config, Part plan, int device, std::string whose);
    int device() const { return device_; }
    int64_t workspace() const { return workspace_; }
    /// Runs on the stream of the launch, with a workspace of its own: `data` by the tensors' numbers.
    void run(Data data) const { run(data.begin(), data.size()); }
    void run(const std::pair<int64_t, const void*>* data, size_t count) const;

private:
    Part config_, plan_;
    int device_;
    int64_t workspace_ = 0;
    std::string whose_;
};
using PlanPtr = std::unique_ptr<Plan>;

class Graph {
public:
    /// `name` is the op that errors name.
    explicit Graph(std::string name) : name_(std::move(name)) {}

    /// A tensor by a number that its data will be given by.
    Descriptor tensor(int64_t number, const Tensor& tensor);
    /// A descriptor that operations refer to, to be set and finalised.
    Part& part(int type);
    /// An operation, to be set; `plan` finalises it.
    Part& operation(int type);

    /// The best plan for a device by cuDNN's heuristics; null where no engine can do it. It is made once.
    PlanPtr plan(int device, const Demands& demands = {});
    /// The first of all that can, best first: to be timed.
    std::vector<PlanPtr> plans(int device, const Demands& demands, size_t most);

private:
    std::string name_;
    std::list<Part> parts_, operations_;
};

/// Why the last graph got no plan, for tests and messages.
extern std::string last_refusal;

}  // namespace norch::cudnn
