// The misses of a replay as the engine's observers see them, in the form of the reference's log.
#pragma once

#include <vector>

#include "explain/causes.h"
#include "replay/engine.h"
#include "support/reference_replay.h"
#include "support/traces.h"

namespace tlbscope::explain {

class MissLog final : public replay::Observer {
  public:
    MissLog(const machine::Machine& machine, const recording::Dictionary& dictionary, bool loads = false)
        : causes_(machine, loads), dictionary_(&dictionary) {}

    void looked_up(const replay::Lookups& lookups) override {
        causes_.looked_up(lookups, batch_causes_);
        replay::locate(lookups, batch_misses_);
        for (std::size_t i = 0; i < batch_misses_.size(); ++i) {
            const replay::Miss& miss = batch_misses_[i];
            std::uint64_t instruction = 0;
            if (miss.block != replay::kNoBlock)
                instruction =
                    dictionary_->instruction_address((*dictionary_)[miss.block], miss.instruction).value();
            log[static_cast<std::size_t>(miss.kind)].push_back(
                {.cpu = lookups.cpu.value(),
                 .kind = miss.kind,
                 .mode = miss.mode,
                 .side = miss.side,
                 .process = miss.side == Side::kKernel ? 0 : lookups.space.value(),
                 .page = miss.page,
                 .address = miss.address,
                 .instruction = instruction,
                 .execution = miss.position,
                 .cause = batch_causes_[i]});
        }
    }
    void switching(const replay::SpaceSwitch& to) override { causes_.switching(to); }
    void removing(const replay::Removal& removal) override { causes_.removing(removal); }
    [[nodiscard]] const std::array<CauseCounts, 2>& causes() const { return causes_.counts(); }

    std::vector<reference::MissRecord> log[2];  // by kind, each in the order of the run

  private:
    MachineCauses causes_;
    const recording::Dictionary* dictionary_;
    std::vector<Cause> batch_causes_;
    std::vector<replay::Miss> batch_misses_;
};

inline std::vector<reference::MissRecord> of_kind(const std::vector<reference::MissRecord>& log, Kind kind) {
    std::vector<reference::MissRecord> some;
    for (const reference::MissRecord& record : log)
        if (record.kind == kind) some.push_back(record);
    return some;
}

inline std::string text_of(const std::vector<reference::MissRecord>& log) {
    std::string text;
    for (const reference::MissRecord& m : log)
        text += "cpu " + std::to_string(m.cpu) + " process " + std::to_string(m.process) + " page " +
                std::to_string(m.page) + " address " + std::to_string(m.address) + " instruction " +
                std::to_string(m.instruction) + " execution " + std::to_string(m.execution) + " mode " +
                std::to_string(static_cast<int>(m.mode)) + " " + std::string(replay::name_of(m.cause)) + "\n";
    return text;
}

}  // namespace tlbscope::explain
