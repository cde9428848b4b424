// Which TensorFlow this library was built for, to be read from the file before
// it is loaded: another one may crash in it. `strings` shows it as well.

#define TL_TEXT_OF(token) #token
#define TL_TEXT(macro) TL_TEXT_OF(macro)

extern "C" const char tl_built_for[];
extern "C" const char tl_built_for[] =
    "TensorLightning for TensorFlow " TL_TEXT(TL_TENSORFLOW_VERSION);
