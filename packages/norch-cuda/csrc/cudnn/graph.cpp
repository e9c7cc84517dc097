#include "cudnn/graph.h"

#include <algorithm>
#include <array>

#include "common/scratch.h"
#include "runtime/allocator.h"
#include "runtime/runtime.h"

namespace norch::cudnn {

std::string last_refusal;

namespace {

// cudnnBackendDescriptorType_t
enum { ENGINE = 2, ENGINE_CONFIG = 3, HEURISTICS = 4, EXECUTION_PLAN = 5, OPERATION_GRAPH = 15, VARIANT_PACK = 16, TENSOR = 17 };

// cudnnBackendAttributeName_t
enum {
    HEURISTIC_MODE = 200,
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    CONFIG_ENGINE = 300,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    GRAPH_HANDLE = 800,
    GRAPH_OPERATIONS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_SHAPE = 902,
    TENSOR_STRIDES = 903,
    TENSOR_NUMBER = 906,
    TENSOR_IS_VIRTUAL = 907,
    TENSOR_IS_BY_VALUE = 908,
    PACK_NUMBERS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    ENGINE_NUMERICAL_NOTES = 1303,
};

enum Mode { MODE_FALLBACK = 2, MODE_A = 3 };  // cudnnBackendHeurMode_t

bool fits(const Part& config, const Demands& demands, const std::string& name) {
    Part engine(ENGINE, name);
    Descriptor place = engine.get();
    config.read(CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &place);
    std::array<int, 32> notes = {};
    const int64_t count = engine.read(ENGINE_NUMERICAL_NOTES, TYPE_NUMERICAL_NOTE, int64_t(notes.size()), notes.data());
    for (int64_t i = 0; i < std::min(count, int64_t(notes.size())); ++i) {
        const int note = notes[size_t(i)];
        if (demands.is_deterministic && note == NONDETERMINISTIC) return false;
        if (demands.is_ieee && (note == TENSOR_CORE || note == DOWN_CONVERT_INPUTS)) return false;
        if (note == REDUCED_PRECISION_REDUCTION) return false;
    }
    return true;
}

}  // namespace

Part::Part(int type, std::string whose) : whose_(std::move(whose)) {
    check(functions().create_descriptor(type, &descriptor_), "to describe " + whose_);
}

Part::~Part() {
    if (descriptor_) functions().destroy_descriptor(descriptor_);
}

void Part::set(int attribute, int type, int64_t count, const void* values) {
    check(functions().set_attribute(descriptor_, attribute, type, count, values), "to describe " + whose_);
}

void Part::finalize() { check(functions().finalize(descriptor_), "to describe " + whose_); }

int64_t Part::read(int attribute, int type, int64_t most, void* values) const {
    int64_t count = 0;
    check(functions().get_attribute(descriptor_, attribute, type, most, &count, values), "to say what it has for " + whose_);
    return count;
}

Plan::Plan(Part config, Part plan, int device, std::string whose)
    : config_(std::move(config)), plan_(std::move(plan)), device_(device), whose_(std::move(whose)) {
    plan_.read(PLAN_WORKSPACE, TYPE_INT64, 1, &workspace_);
    note_scratch(workspace_);
}

void Plan::run(const std::pair<int64_t, const void*>* data, size_t count) const {
    const Scratch<> scratch{size_t(workspace_)};
    const Handle handle = launch_handle();
    std::vector<int64_t> numbers(count);
    std::vector<const void*> pointers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = data[i].first, pointers[i] = data[i].second;
    Part pack(VARIANT_PACK, whose_);
    pack.set(PACK_NUMBERS, numbers);
    pack.set(PACK_POINTERS, TYPE_POINTER, int64_t(count), pointers.data());
    void* workspace = workspace_ ? scratch.data() : nullptr;
    pack.set(PACK_WORKSPACE, TYPE_POINTER, 1, &workspace);
    pack.finalize();
    check(functions().execute(handle, plan_.get(), pack.get()), "to run " + whose_);
}

Descriptor Graph::tensor(int64_t number, const Tensor& tensor) {
    Part& out = part(TENSOR);
    out.set(TENSOR_NUMBER, number);
    out.set(TENSOR_TYPE, TYPE_DATA_TYPE, tensor.type);
    out.set(TENSOR_SHAPE, tensor.shape);
    out.set(TENSOR_STRIDES, tensor.strides);
    out.set(TENSOR_ALIGNMENT, tensor.alignment);
    if (tensor.is_virtual) out.set(TENSOR_IS_VIRTUAL, true);
    if (tensor.is_by_value) out.set(TENSOR_IS_BY_VALUE, true);
    out.finalize();
    return out.get();
}

Part& Graph::part(int type) { return parts_.emplace_back(type, name_); }
Part& Graph::operation(int type) { return operations_.emplace_back(type, name_); }

PlanPtr Graph::plan(int device, const Demands& demands) {
    std::vector<PlanPtr> found = plans(device, demands, 1);
    return found.empty() ? nullptr : std::move(found[0]);
}

std::vector<PlanPtr> Graph::plans(int device, const Demands& demands, size_t most) {
    std::vector<PlanPtr> out;
    const RelaxedCapture relaxed;  // engines are loaded, some are compiled
    bind(device);
    Handle handle = nullptr;
    last_refusal.clear();
    auto refused = [](const Failure& failure) {
        if (!failure.is_refusal()) throw failure;
        last_refusal = failure.what();
    };
    Part graph(OPERATION_GRAPH, name_);
    try {
        std::vector<Descriptor> operations;
        for (Part& operation : operations_) {
            operation.finalize();
            operations.push_back(operation.get());
        }
        handle = handle_of(device);
        graph.set(GRAPH_OPERATIONS, TYPE_DESCRIPTOR, int64_t(operations.size()), operations.data());
        graph.set(GRAPH_HANDLE, TYPE_HANDLE, 1, &handle);
        graph.finalize();
    } catch (const Failure& failure) {
        refused(failure);
        return out;
    }
    for (const Mode mode : {MODE_A, MODE_FALLBACK}) {
        std::list<Part> configs;
        try {
            Part heuristics(HEURISTICS, name_);
            heuristics.set(HEURISTIC_GRAPH, graph);
            heuristics.set(HEURISTIC_MODE, TYPE_HEURISTIC_MODE, mode);
            heuristics.finalize();
            const int64_t count = heuristics.read(HEURISTIC_RESULTS, TYPE_DESCRIPTOR, 0, nullptr);
            std::vector<Descriptor> places;
            for (int64_t i = 0; i < count; ++i) places.push_back(configs.emplace_back(ENGINE_CONFIG, name_).get());
            const int64_t got = heuristics.read(HEURISTIC_RESULTS, TYPE_DESCRIPTOR, count, places.data());
            while (int64_t(configs.size()) > got) configs.pop_back();
        } catch (const Failure& failure) {
            refused(failure);
            continue;
        }
        for (Part& config : configs) {
            try {
                if (!fits(config, demands, name_)) continue;
                Part plan(EXECUTION_PLAN, name_);
                plan.set(PLAN_CONFIG, config);
                plan.set(PLAN_HANDLE, TYPE_HANDLE, 1, &handle);
                plan.finalize();
                auto made = std::make_unique<Plan>(std::move(config), std::move(plan), device, name_);
                if (made->workspace() > demands.most_workspace) continue;
                out.push_back(std::move(made));
                if (out.size() == most) return out;
            } catch (const Failure& failure) {
                refused(failure);
            }
        }
    }
    if (out.empty() && last_refusal.empty()) last_refusal = "no engine of cuDNN's does " + name_ + " as it is asked for";
    return out;
}

}  // namespace norch::cudnn
