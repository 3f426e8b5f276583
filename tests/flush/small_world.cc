#include "small_world.h"

#include <algorithm>
#include <unordered_set>

namespace tlbscope::flush {

namespace {

constexpr std::uint64_t kPage = 4096;

enum : char { kNothing = '.', kGood = 'g', kStale = '!' };

struct World : Hardware {
    WorldSize size;
    std::unique_ptr<Flusher> flusher;
    std::vector<char> mapped;  // [space][page]
    std::vector<char> tlb;     // [cpu][space][page]
    std::vector<char> walk;    // [cpu][space]: the table
    std::vector<int> running;  // [cpu]: space, or -1
    std::uint32_t parent = 0;  // in the list of visited worlds
    Step step;

    World(const WorldSize& of, std::unique_ptr<Flusher> with)
        : size(of),
          flusher(std::move(with)),
          mapped(of.spaces * of.pages, 1),
          tlb(of.cpus * of.spaces * of.pages, kNothing),
          walk(of.cpus * of.spaces, kNothing),
          running(of.cpus, -1) {}
    World(const World& other)
        : Hardware(other),
          size(other.size),
          flusher(other.flusher->clone()),
          mapped(other.mapped),
          tlb(other.tlb),
          walk(other.walk),
          running(other.running) {}

    char& entry(std::uint32_t cpu, std::uint32_t space, std::uint32_t page) {
        return tlb[(cpu * size.spaces + space) * size.pages + page];
    }
    char& table(std::uint32_t cpu, std::uint32_t space) { return walk[cpu * size.spaces + space]; }
    char& present(std::uint32_t space, std::uint32_t page) { return mapped[space * size.pages + page]; }

    void apply(const Operation& operation) override {
        for (std::uint32_t cpu = 0; cpu < size.cpus; ++cpu) {
            if (!operation.global && !operation.cpus.has(cpu)) continue;
            for (std::uint32_t space = 0; space < size.spaces; ++space) {
                if (operation.scope != TlbScope::kAll && operation.space.value() != space) continue;
                if (operation.walk_cache || operation.scope == TlbScope::kWalkCache)
                    table(cpu, space) = kNothing;
                for (std::uint32_t page = 0; page < size.pages; ++page) {
                    const bool named = operation.scope == TlbScope::kPid ||
                                       operation.scope == TlbScope::kAll ||
                                       (operation.scope != TlbScope::kWalkCache &&
                                        page * kPage >= operation.start && page * kPage < operation.end);
                    if (named) entry(cpu, space, page) = kNothing;
                }
            }
        }
    }

    Request request(RequestKind kind, std::uint32_t cpu, std::uint32_t space, std::uint32_t page) const {
        return {.kind = kind,
                .space = SpaceId(space),
                .cpu = cpu,
                .users = size.threads,
                .current = running[cpu] == static_cast<int>(space),
                .start = page * kPage,
                .end = (page + 1) * kPage};
    }
    void spoil(std::uint32_t space, std::uint32_t page) {
        for (std::uint32_t cpu = 0; cpu < size.cpus; ++cpu)
            if (entry(cpu, space, page) == kGood) entry(cpu, space, page) = kStale;
    }

    // Gives false when the step is not possible here.
    bool take(const Step& s) {
        const bool runs = running[s.cpu] == static_cast<int>(s.space);
        flusher->show(this);
        switch (s.what) {
            case Step::What::kRun: {
                if (runs) return false;
                const auto elsewhere = static_cast<std::uint32_t>(
                    std::count(running.begin(), running.end(), static_cast<int>(s.space)));
                if (elsewhere >= size.threads) return false;
                running[s.cpu] = static_cast<int>(s.space);
                flusher->switch_to(s.cpu, SpaceId(s.space));
                return true;
            }
            case Step::What::kIdle:
                if (running[s.cpu] < 0) return false;
                running[s.cpu] = -1;
                flusher->switch_to(s.cpu, std::nullopt);
                return true;
            case Step::What::kTouch:
            case Step::What::kSpeculate:
                if (s.what == Step::What::kTouch
                        ? !runs
                        : running[s.cpu] >= 0 || !flusher->loaded(s.cpu, SpaceId(s.space)))
                    return false;
                if (present(s.space, s.page) == 0 || entry(s.cpu, s.space, s.page) != kNothing) return false;
                entry(s.cpu, s.space, s.page) = kGood;
                table(s.cpu, s.space) = kGood;
                return true;
            case Step::What::kMap: {
                if (!runs || present(s.space, s.page) != 0) return false;
                present(s.space, s.page) = 1;
                flusher->request(request(RequestKind::kInstalled, s.cpu, s.space, s.page));
                return true;
            }
            case Step::What::kUnmap: {
                if (!runs || present(s.space, s.page) == 0) return false;
                present(s.space, s.page) = 0;
                spoil(s.space, s.page);
                Request what = request(RequestKind::kGather, s.cpu, s.space, s.page);
                what.freed_tables = true;
                for (std::uint32_t page = 0; page < size.pages; ++page)
                    if (present(s.space, page) != 0) what.freed_tables = false;
                if (what.freed_tables)
                    for (std::uint32_t cpu = 0; cpu < size.cpus; ++cpu)
                        if (table(cpu, s.space) == kGood) table(cpu, s.space) = kStale;
                flusher->request(what);
                return true;
            }
            case Step::What::kRestrict:  // as at a fork: every entry of the space loses a right
                if (!runs) return false;
                for (std::uint32_t page = 0; page < size.pages; ++page) spoil(s.space, page);
                flusher->request(request(RequestKind::kSpace, s.cpu, s.space, 0));
                return true;
            case Step::What::kReplace:  // copy on write: another page behind the same address
                if (!runs || present(s.space, s.page) == 0) return false;
                spoil(s.space, s.page);
                flusher->request(request(RequestKind::kPage, s.cpu, s.space, s.page));
                return true;
        }
        return false;
    }

    // What is wrong, if anything. A CPU that runs a space can use every entry it holds for it; one that only
    // has it loaded uses none, but its walker may go through the tables it remembers.
    std::string wrong() {
        for (std::uint32_t cpu = 0; cpu < size.cpus; ++cpu)
            for (std::uint32_t space = 0; space < size.spaces; ++space) {
                if (running[cpu] == static_cast<int>(space))
                    for (std::uint32_t page = 0; page < size.pages; ++page)
                        if (entry(cpu, space, page) == kStale)
                            return "CPU " + std::to_string(cpu) + " can use the old translation of page " +
                                   std::to_string(page) + " of space " + std::to_string(space);
                const bool walks = running[cpu] == static_cast<int>(space) ||
                                   (size.speculation && flusher->loaded(cpu, SpaceId(space)));
                if (walks && table(cpu, space) == kStale)
                    return "CPU " + std::to_string(cpu) + " can walk a freed table of space " +
                           std::to_string(space);
            }
        return {};
    }

    std::string key() const {
        std::string text(mapped.begin(), mapped.end());
        text.append(tlb.begin(), tlb.end());
        text.append(walk.begin(), walk.end());
        for (const int space : running) text += static_cast<char>('A' + space);
        return text + flusher->state();
    }
};

}  // namespace

std::string Step::text() const {
    const std::string on = " on CPU " + std::to_string(cpu);
    const std::string of = " page " + std::to_string(page) + " of space " + std::to_string(space);
    switch (what) {
        case What::kRun:
            return "run space " + std::to_string(space) + on;
        case What::kIdle:
            return "idle" + on;
        case What::kTouch:
            return "touch" + of + on;
        case What::kSpeculate:
            return "speculate on" + of + on;
        case What::kMap:
            return "map" + of + on;
        case What::kUnmap:
            return "unmap" + of + on;
        case What::kRestrict:
            return "restrict space " + std::to_string(space) + on;
        case What::kReplace:
            return "replace" + of + on;
    }
    return {};
}

std::string Search::text() const {
    std::string text;
    for (const Step& step : counterexample) text += step.text() + "\n";
    return text + complaint;
}

Search explore(const Flusher& start, const WorldSize& size, std::uint64_t most_states) {
    Search search;
    std::vector<std::unique_ptr<World>> layer;
    struct Visited {
        std::uint32_t parent;
        Step step;
    };
    std::vector<Visited> visited;
    std::unordered_set<std::string> seen;
    layer.push_back(std::make_unique<World>(size, start.clone()));
    visited.push_back({});
    seen.insert(layer.front()->key());
    while (!layer.empty()) {
        std::vector<std::unique_ptr<World>> next;
        for (const auto& world : layer)
            for (const auto what :
                 {Step::What::kRun, Step::What::kIdle, Step::What::kTouch, Step::What::kSpeculate,
                  Step::What::kMap, Step::What::kUnmap, Step::What::kRestrict, Step::What::kReplace}) {
                if (what == Step::What::kSpeculate && !size.speculation) continue;
                const bool any_space = what != Step::What::kIdle;
                const bool any_page = any_space && what != Step::What::kRun && what != Step::What::kRestrict;
                for (std::uint32_t cpu = 0; cpu < size.cpus; ++cpu)
                    for (std::uint32_t space = 0; space < (any_space ? size.spaces : 1); ++space)
                        for (std::uint32_t page = 0; page < (any_page ? size.pages : 1); ++page) {
                            const Step step{.what = what, .cpu = cpu, .space = space, .page = page};
                            auto after = std::make_unique<World>(*world);
                            if (!after->take(step)) continue;
                            if (std::string wrong = after->wrong(); !wrong.empty()) {
                                search.complaint = std::move(wrong);
                                search.counterexample.push_back(step);
                                for (std::uint32_t at = world->parent; at != 0; at = visited[at].parent)
                                    search.counterexample.push_back(visited[at].step);
                                std::reverse(search.counterexample.begin(), search.counterexample.end());
                                search.states = visited.size();
                                return search;
                            }
                            if (!seen.insert(after->key()).second) continue;
                            after->parent = static_cast<std::uint32_t>(visited.size());
                            visited.push_back({.parent = world->parent, .step = step});
                            next.push_back(std::move(after));
                            if (visited.size() >= most_states) {
                                search.states = visited.size();
                                return search;
                            }
                        }
            }
        layer = std::move(next);
    }
    search.states = visited.size();
    search.complete = true;
    return search;
}

}  // namespace tlbscope::flush
