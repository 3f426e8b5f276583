// What each CPU's TLB holds of user translations while a recording's references go by, under one policy:
// which entries a flush removes though their page has not changed, and how many of them are missed later.
//
// Each CPU has one LRU array of as many entries as the machine says it holds at all levels; entries are
// tagged by space. The kernel's own translations are global and not among them.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flush/flusher.h"

namespace tlbscope::flush {

class TlbContents : public Hardware {
  public:
    TlbContents(Flusher& flusher, std::uint64_t entries, PageShift page)
        : flusher_(&flusher), entries_(entries), page_(page) {}

    // The request whose operations follow: what it names is not alive.
    void begin(const Request& request) { request_ = &request; }
    void end() { request_ = nullptr; }
    void apply(const Operation& operation) override;
    void reference(std::uint32_t cpu, SpaceId space, std::uint64_t address);
    void forget(SpaceId space);

  private:
    struct Key {
        std::uint64_t page = 0;
        std::uint32_t space = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const {
            return static_cast<std::size_t>((key.page * 0x9e3779b97f4a7c15ULL) ^
                                            (std::uint64_t{key.space} << 32));
        }
    };
    struct Cpu {
        std::list<Key> order;  // most recently used first
        std::unordered_map<Key, std::list<Key>::iterator, Hash> entries;
        std::unordered_map<Key, Reason, Hash> missed_alive;  // dropped alive and not used since
    };
    Cpu& cpu(std::uint32_t number) {
        if (number >= cpus_.size()) cpus_.resize(number + 1);
        return cpus_[number];
    }
    void drop(Cpu& cpu, const Operation& operation);

    Flusher* flusher_;
    std::uint64_t entries_;
    PageShift page_;
    const Request* request_ = nullptr;
    std::vector<Cpu> cpus_;
};

}  // namespace tlbscope::flush
