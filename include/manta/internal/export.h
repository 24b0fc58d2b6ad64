// MANTA_EXPORT marks the few functions that libmanta.so shows to programs; all others are hidden.
#pragma once

#define MANTA_EXPORT __attribute__((visibility("default")))
