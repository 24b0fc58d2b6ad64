// error: Manta can send but not receive this view
#include "manta/manta.h"

std::size_t Length(std::string_view text) { return text.size(); }

void Use() { (void)manta::Task(Length).Remote("text"); }
