// The text of the composite "fused", as norch.backend.parse_steps reads it.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "common/kernel.h"

namespace norch {

struct FusedStep {
    struct Read {
        bool is_step;  // the result of step `index`, else operand `index`
        int index;
    };
    std::string op;
    DType dtype;
    std::vector<Read> reads;
    Attrs attrs;
};

inline std::vector<std::string> split_text(const std::string& text, char at) {
    std::vector<std::string> out(1);
    for (char c : text) {
        if (c == at) out.emplace_back();
        else out.back() += c;
    }
    return out;
}

inline Attrs::Value fused_attribute(const std::string& text) {
    Attrs::Value out;
    char* end;
    if (text == "True" || text == "False") {
        out.kind = Attrs::Value::integer;
        out.i = text == "True";
        return out;
    }
    out.i = std::strtoll(text.c_str(), &end, 10);
    if (!text.empty() && !*end) {
        out.kind = Attrs::Value::integer;
        return out;
    }
    out.f = std::strtod(text.c_str(), &end);
    out.kind = !text.empty() && !*end ? Attrs::Value::number : Attrs::Value::text;
    out.s = text;
    return out;
}

/// Throws std::invalid_argument where the request's `steps` are no program of its operands.
inline std::vector<FusedStep> fused_steps(const Request& request) {
    std::vector<FusedStep> out;
    for (const std::string& line : split_text(request.attrs.text("steps"), ';')) {
        const std::vector<std::string> words = split_text(line, ' ');
        if (words.size() < 2) throw std::invalid_argument("a step of a fused program without a dtype: " + line);
        FusedStep step{words[0], dtype_named(words[1]), {}, {}};
        for (size_t i = 2; i < words.size(); ++i) {
            const size_t equals = words[i].find('=');
            if (equals != std::string::npos) {
                step.attrs.values[words[i].substr(0, equals)] = fused_attribute(words[i].substr(equals + 1));
                continue;
            }
            char* end = nullptr;
            const bool is_step = words[i][0] == 's';
            const long index = words[i].size() > 1 ? std::strtol(words[i].c_str() + 1, &end, 10) : -1;
            const size_t limit = is_step ? out.size() : request.operands.size();
            if ((!is_step && words[i][0] != 'o') || !end || *end || index < 0 || size_t(index) >= limit)
                throw std::invalid_argument("a step of a fused program reads '" + words[i] + "': " + line);
            step.reads.push_back({is_step, int(index)});
        }
        out.push_back(std::move(step));
    }
    return out;
}

}  // namespace norch
