#include "capture/session.h"
namespace tlbscope::capture {
Result<Session> record_machine(const RecordOptions&) { return fail("", "guests are not built in", ""); }
}
