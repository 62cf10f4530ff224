/* A libnvidia-ml.so.1 whose GPUs stand in a text file.
 *
 * It has the functions of NVIDIA's management library that emulator.metrics asks for, with the
 * types and error codes of NVIDIA's nvml.h, so that the real Python bindings load and call it. The
 * file that FAKE_NVML names is read again at every call: a test that writes it changes the machine.
 * A line is a key and a value:
 *
 *     driver 580.65.06
 *     devices 2
 *     0.uuid GPU-a                    0.name NVIDIA H100
 *     0.memory TOTAL RESERVED USED    bytes
 *     0.utilisation 93                percent
 *     0.power 212500                  milliwatts
 *     0.temperature 61
 *     0.clock.1 1410                  MHz, by NVML's number of the clock (1: SM, 2: memory)
 *     0.ecc 0                         uncorrected, volatile
 *     0.compute PID:BYTES ...         0.graphics the same; a dash for bytes that are not available
 *     0.busy PID:PERCENT:STAMP ...    microseconds
 *     0.events 8                      types that are offered
 *     0.xid SERIAL:XID:INSTANCE ...   each serial is delivered once to each set of events
 *     0.mig 7                         MIG is on, so many instances are possible
 *     0.mig.1.uuid MIG-a              the instance in place 1, with the keys of a device
 *     0.mig.1.instance 3              its GPU instance id
 *
 *     fail.FUNCTION CODE              every call of it fails
 *     0.fail.FUNCTION CODE            for this device
 *     0.lost CODE                     every call for this device fails
 *
 * What a device has no line for is not supported. FAKE_NVML_LOG, where set, gets a line for each call.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, VERSION_MISMATCH = 25 };
enum { MEMORY_V2 = 0x02000028, TEMPERATURE_V1 = 0x0100000c, XID_EVENT = 8, MOST = 64 };
#define NOWHERE 0xFFFFFFFFu
#define NOT_AVAILABLE (~0ull)

typedef int nvmlReturn_t;
typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { char key[48]; } *nvmlDevice_t;
typedef struct { nvmlDevice_t device; long delivered; } *nvmlEventSet_t;
typedef struct { ull total, free, used; } nvmlMemory_t;
typedef struct { uint version; ull total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { uint gpu, memory; } nvmlUtilization_t;
typedef struct { uint version; int sensor; int temperature; } nvmlTemperature_t;
typedef struct { uint pid; ull usedGpuMemory; uint gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { uint pid; ull timeStamp; uint smUtil, memUtil, encUtil, decUtil; } nvmlProcessUtilizationSample_t;
typedef struct { nvmlDevice_t device; ull eventType, eventData; uint gpuInstanceId, computeInstanceId; } nvmlEventData_t;

/* The sizes of the real ones on 64 bits: `version` of memory and temperature carries theirs. */
_Static_assert(sizeof(nvmlMemory_t) == 24, "nvmlMemory_t");
_Static_assert(sizeof(nvmlMemory_v2_t) == (MEMORY_V2 & 0xffffff), "nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlTemperature_t) == (TEMPERATURE_V1 & 0xffffff), "nvmlTemperature_v1_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");

static int opened;
static struct { char key[48]; } handles[MOST];
static char value[4096];

/* --- The file ------------------------------------------------------------------------------ */

/* The value of a key, or NULL. */
static const char *look(const char *format, ...) {
    char key[128], line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NULL;
    size_t length = strlen(key);
    const char *found = NULL;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || (line[length] != ' ' && line[length] != '\n')) continue;
        line[strcspn(line, "\n")] = 0;
        strcpy(value, line[length] ? line + length + 1 : "");
        found = value;
    }
    fclose(file);
    return found;
}

static int is_handle(nvmlDevice_t device) {
    return (void *)device >= (void *)handles && (void *)device < (void *)(handles + MOST);
}

static nvmlDevice_t handle_of(const char *key) {
    for (int i = 0; i < MOST; i++) {
        if (!handles[i].key[0]) strncpy(handles[i].key, key, sizeof handles[i].key - 1);
        if (!strcmp(handles[i].key, key)) return (nvmlDevice_t)&handles[i];
    }
    abort();
}

/* What stands in the way of a call; SUCCESS where nothing does. */
static nvmlReturn_t hindrance(const char *function) {
    const char *path = getenv("FAKE_NVML_LOG"), *code;
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) { fprintf(log, "%s\n", function); fclose(log); }
    if ((code = look("fail.%s", function))) return atoi(code);
    return SUCCESS;
}

static nvmlReturn_t device_hindrance(const char *function, nvmlDevice_t device) {
    const char *code;
    nvmlReturn_t failed = hindrance(function);
    if (failed) return failed;
    if (!opened) return UNINITIALIZED;
    if (!is_handle(device)) return INVALID_ARGUMENT;
    if ((code = look("%s.lost", device->key))) return atoi(code);
    if ((code = look("%s.fail.%s", device->key, function))) return atoi(code);
    return SUCCESS;
}

#define CALL() do { nvmlReturn_t failed = hindrance(__func__); if (failed) return failed; \
                    if (!opened) return UNINITIALIZED; } while (0)
#define DEVICE_CALL(device) do { nvmlReturn_t failed = device_hindrance(__func__, device); \
                                 if (failed) return failed; } while (0)

static nvmlReturn_t number(nvmlDevice_t device, const char *key, uint *answer) {
    const char *text = look("%s.%s", device->key, key);
    if (!text) return NOT_SUPPORTED;
    *answer = (uint)strtoul(text, NULL, 10);
    return SUCCESS;
}

static nvmlReturn_t text(const char *found, char *buffer, uint length) {
    if (!found) return NOT_SUPPORTED;
    if (strlen(found) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, found);
    return SUCCESS;
}

/* --- The machine --------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(uint flags) {
    (void)flags;
    nvmlReturn_t failed = hindrance(__func__);
    if (failed) return failed;
    if (!look("driver")) return DRIVER_NOT_LOADED;
    opened++;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
    CALL();
    opened--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static char said[32];
    snprintf(said, sizeof said, "error %d", code);
    return said;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, uint length) {
    CALL();
    return text(look("driver"), version, length);
}

nvmlReturn_t nvmlDeviceGetCount_v2(uint *count) {
    CALL();
    const char *found = look("devices");
    *count = found ? (uint)atoi(found) : 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *device) {
    char key[16];
    CALL();
    const char *count = look("devices");
    if (!count || index >= (uint)atoi(count)) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%u", index);
    const char *code = look("%s.fail.%s", key, __func__);
    if (code) return atoi(code);
    *device = handle_of(key);
    return SUCCESS;
}

/* --- A device ------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, uint length) {
    DEVICE_CALL(device);
    return text(look("%s.uuid", device->key), uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, uint length) {
    DEVICE_CALL(device);
    return text(look("%s.name", device->key), name, length);
}

static nvmlReturn_t read_memory(nvmlDevice_t device, ull *total, ull *reserved, ull *used) {
    const char *found = look("%s.memory", device->key);
    return found && sscanf(found, "%llu %llu %llu", total, reserved, used) == 3 ? SUCCESS : NOT_SUPPORTED;
}

/* What the first version calls used has in it what the driver keeps for itself. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ull total, reserved, used;
    DEVICE_CALL(device);
    nvmlReturn_t failed = read_memory(device, &total, &reserved, &used);
    if (!failed) *memory = (nvmlMemory_t){total, total - reserved - used, reserved + used};
    return failed;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ull total, reserved, used;
    DEVICE_CALL(device);
    if (memory->version != MEMORY_V2) return VERSION_MISMATCH;
    nvmlReturn_t failed = read_memory(device, &total, &reserved, &used);
    if (!failed) *memory = (nvmlMemory_v2_t){MEMORY_V2, total, reserved, total - reserved - used, used};
    return failed;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    DEVICE_CALL(device);
    rates->memory = 0;
    return number(device, "utilisation", &rates->gpu);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, uint *milliwatts) {
    DEVICE_CALL(device);
    return number(device, "power", milliwatts);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, uint *celsius) {
    DEVICE_CALL(device);
    return sensor ? INVALID_ARGUMENT : number(device, "temperature", celsius);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    DEVICE_CALL(device);
    if (temperature->version != TEMPERATURE_V1) return VERSION_MISMATCH;
    return temperature->sensor ? INVALID_ARGUMENT : number(device, "temperature", (uint *)&temperature->temperature);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, uint *mhz) {
    char key[16];
    DEVICE_CALL(device);
    snprintf(key, sizeof key, "clock.%d", clock);
    return number(device, key, mhz);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, ull *count) {
    uint errors;
    DEVICE_CALL(device);
    if (kind != 1 || counter != 0) return INVALID_ARGUMENT; /* uncorrected, volatile */
    nvmlReturn_t failed = number(device, "ecc", &errors);
    if (!failed) *count = errors;
    return failed;
}

/* --- Processes ----------------------------------------------------------------------------- */

/* A number, or what NVML says where there is none. */
static ull available(const char *said) {
    return *said == '-' ? NOT_AVAILABLE : strtoull(said, NULL, 10);
}

static nvmlReturn_t processes(nvmlDevice_t device, const char *list, uint *count, nvmlProcessInfo_t *infos) {
    uint room = *count, there = 0;
    const char *found = look("%s.%s", device->key, list);
    if (!found) return NOT_SUPPORTED;
    for (char *word = strtok((char *)found, " "); word; word = strtok(NULL, " "), there++) {
        char *bytes = strchr(word, ':');
        if (!infos || there >= room) continue;
        infos[there] = (nvmlProcessInfo_t){(uint)atoi(word), available(bytes + 1), NOWHERE, NOWHERE};
    }
    *count = there;
    return there > room || (there && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, uint *count, nvmlProcessInfo_t *infos) {
    DEVICE_CALL(device);
    return processes(device, "compute", count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, uint *count, nvmlProcessInfo_t *infos) {
    DEVICE_CALL(device);
    return processes(device, "graphics", count, infos);
}

/* As the driver: the size is that of its buffer, whatever is in it; only then it looks. A driver
 * that has recorded nothing at all is done with the size. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             uint *count, ull since) {
    DEVICE_CALL(device);
    const char *found = look("%s.busy", device->key);
    if (!found) return NOT_SUPPORTED;
    if (!samples) {
        *count = *found ? MOST : 0;
        return *found ? INSUFFICIENT_SIZE : SUCCESS;
    }
    uint there = 0;
    for (char *word = strtok((char *)found, " "); word; word = strtok(NULL, " ")) {
        nvmlProcessUtilizationSample_t one = {0};
        if (sscanf(word, "%u:%u:%llu", &one.pid, &one.smUtil, &one.timeStamp) != 3) abort();
        if (one.timeStamp > since || !one.timeStamp) samples[there++] = one;
    }
    *count = there;
    return there ? SUCCESS : NOT_FOUND;
}

/* --- MIG ----------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, uint *current, uint *pending) {
    DEVICE_CALL(device);
    const char *found = look("%s.mig", device->key);
    if (!found) return NOT_SUPPORTED;
    *current = *pending = atoi(found) > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, uint *count) {
    DEVICE_CALL(device);
    return number(device, "mig", count);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, uint index, nvmlDevice_t *instance) {
    char key[48];
    DEVICE_CALL(device);
    snprintf(key, sizeof key, "%.16s.mig.%u", device->key, index);
    if (!look("%s.uuid", key)) return NOT_FOUND;
    *instance = handle_of(key);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, uint *id) {
    DEVICE_CALL(device);
    return number(device, "instance", id);
}

/* --- Events -------------------------------------------------------------------------------- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    CALL();
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, ull *types) {
    uint found;
    DEVICE_CALL(device);
    nvmlReturn_t failed = number(device, "events", &found);
    *types = failed ? 0 : found;
    return failed;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, ull types, nvmlEventSet_t set) {
    DEVICE_CALL(device);
    if (types != XID_EVENT || !set) return INVALID_ARGUMENT;
    set->device = device;
    return SUCCESS;
}

/* Never waits: what a test has written is there or is not. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, uint timeout) {
    (void)timeout;
    CALL();
    if (!set || !set->device) return INVALID_ARGUMENT;
    const char *code = look("%s.fail.%s", set->device->key, __func__);
    if (code) return atoi(code);
    const char *found = look("%s.xid", set->device->key);
    for (char *word = found ? strtok((char *)found, " ") : NULL; word; word = strtok(NULL, " ")) {
        long serial, xid, instance = -1;
        if (sscanf(word, "%ld:%ld:%ld", &serial, &xid, &instance) < 2) abort();
        if (serial <= set->delivered) continue;
        set->delivered = serial;
        *data = (nvmlEventData_t){set->device, XID_EVENT, (ull)xid, (uint)instance, NOWHERE};
        return SUCCESS;
    }
    return TIMEOUT;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    CALL();
    free(set);
    return SUCCESS;
}
