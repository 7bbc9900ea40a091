/* Inline caches for what mypyc looks up by name each time: fields of records, and names of other modules.

   Python 3.11's own interpreter remembers at each place where it found an attribute or a global, and checks
   by a version number whether that still holds (PEP 659). mypyc's code asks the type and the module's dict
   anew: 150 and 120 instructions, 310 and 130 times an execution. Here each place remembers, too, by the same
   version numbers, so that a class or module that changes is looked up again.

   Compiled under the name CPy.h (`dev.compiled`): generated code includes <CPy.h> and gets this file first,
   mypyc's own library includes "CPy.h" and does not. Other versions of Python number their types and dicts
   otherwise: there nothing is remembered. */

#ifndef HORARIUM_INLINE_CACHES_H
#define HORARIUM_INLINE_CACHES_H

#include_next <CPy.h>

#if defined(__GNUC__) && PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#include <structmember.h>

/* Where instances of the type of this version keep the attribute of this name, which is another one at each
   call of `getattr`; offset 0: not in a slot, ask the type. */
typedef struct {
    unsigned int version;
    PyObject *name;
    Py_ssize_t offset;
} SlotCache;

static __attribute__((noinline)) PyObject *slot_missed(PyObject *object, PyObject *name, SlotCache *cache) {
    PyObject *found = PyObject_GetAttr(object, name);
    PyTypeObject *type = Py_TYPE(object);
    if (found == NULL || type->tp_getattro != PyObject_GenericGetAttr || !PyUnicode_CheckExact(name)) {
        return found;
    }
    PyObject *descriptor = _PyType_Lookup(type, name);
    /* Not every look gives the type a version, and there is a last one. */
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return found;
    }
    Py_XSETREF(cache->name, Py_NewRef(name)); /* kept, or another one could come to lie where it was */
    cache->version = type->tp_version_tag;
    cache->offset = 0;
    /* The descriptor may be another one than a moment ago, and of a class that this is none of. */
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type) &&
        PyObject_TypeCheck(object, PyDescr_TYPE(descriptor))) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type == T_OBJECT_EX) {
            cache->offset = member->offset;
        }
    }
    return found;
}

static inline PyObject *slot_cached(PyObject *object, PyObject *name, SlotCache *cache) {
    /* A type that changed has version 0, which is none: that was never remembered. */
    if (Py_TYPE(object)->tp_version_tag != cache->version || name != cache->name) {
        return slot_missed(object, name, cache);
    }
    if (cache->offset) {
        PyObject *value = *(PyObject **)((char *)object + cache->offset);
        if (value != NULL) {
            return Py_NewRef(value);
        }
    }
    return PyObject_GetAttr(object, name);
}

#undef CPyObject_GetAttr
#define CPyObject_GetAttr(object, name)                   \
    ({                                                    \
        static SlotCache slot_cache;                      \
        slot_cached((object), (name), &slot_cache);       \
    })

/* What stood under the name in the dict of this version, which no other dict ever has. */
typedef struct {
    uint64_t version;
    PyObject *key;
    PyObject *value;
} GlobalCache;

static __attribute__((noinline)) PyObject *global_missed(PyObject *dict, PyObject *key, GlobalCache *cache) {
    PyObject *found = CPyDict_GetItem(dict, key);
    /* Names are interned, what a program looks up in a dict of its own hardly ever. */
    if (found != NULL && PyDict_CheckExact(dict) && PyUnicode_CheckExact(key) && PyUnicode_CHECK_INTERNED(key)) {
        /* Kept, or another one could come to lie where it was. */
        Py_XSETREF(cache->key, Py_NewRef(key));
        cache->value = found;
        cache->version = ((PyDictObject *)dict)->ma_version_tag;
    }
    return found;
}

static inline PyObject *global_cached(PyObject *dict, PyObject *key, GlobalCache *cache) {
    if (key == cache->key && PyDict_CheckExact(dict) && ((PyDictObject *)dict)->ma_version_tag == cache->version) {
        return Py_NewRef(cache->value);
    }
    return global_missed(dict, key, cache);
}

#define CPyDict_GetItem(dict, key)                        \
    ({                                                    \
        static GlobalCache global_cache;                  \
        global_cached((dict), (key), &global_cache);      \
    })

#endif
#endif
