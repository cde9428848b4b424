#include "caffe_layers/solver_text.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace tensorlightning {
namespace {

enum class Kind { kWord, kString, kSign, kEnd };

struct Token {
  Kind kind = Kind::kEnd;
  std::string_view text;  // With its quotes, if it is a string.
  size_t begin = 0;
  int line = 1;

  size_t end() const { return begin + text.size(); }
  bool Is(char sign) const { return kind == Kind::kSign && text[0] == sign; }
};

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         c == '.' || c == '-' || c == '+';
}

Error At(int line, const std::string& what) {
  return {ErrorCode::kInvalidArgument, std::to_string(line) + ": " + what};
}

class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  Result<Token> Next() {
    SkipBlanks();
    Token token;
    token.begin = position_;
    token.line = line_;
    if (position_ == text_.size()) return token;
    const char first = text_[position_];
    if (first == '"' || first == '\'') {
      const Status closed = SkipString(first);
      if (!closed.ok()) return closed.error();
      token.kind = Kind::kString;
    } else if (IsWord(first)) {
      while (position_ < text_.size() && IsWord(text_[position_])) ++position_;
      token.kind = Kind::kWord;
    } else {
      ++position_;
      token.kind = Kind::kSign;
    }
    token.text = text_.substr(token.begin, position_ - token.begin);
    return token;
  }

 private:
  void SkipBlanks() {
    bool in_comment = false;
    for (; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '\n') {
        ++line_;
        in_comment = false;
      } else if (c == '#') {
        in_comment = true;
      } else if (!in_comment &&
                 std::isspace(static_cast<unsigned char>(c)) == 0) {
        return;
      }
    }
  }

  Status SkipString(char quote) {
    for (++position_; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '\n') break;
      if (c == quote) {
        ++position_;
        return Done{};
      }
      if (c == '\\') ++position_;
    }
    position_ = std::min(position_, text_.size());
    return At(line_, "a string that does not end on its line");
  }

  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1;
};

// What an escaped character stands for, as far as paths and names have them.
std::string Unquoted(std::string_view string) {
  std::string value;
  for (size_t i = 1; i + 1 < string.size(); ++i) {
    if (string[i] == '\\' && i + 2 < string.size()) ++i;
    value += string[i];
  }
  return value;
}

class Block {
 public:
  Block(Tokens& tokens, const Token& opening)
      : tokens_(tokens),
        line_(opening.line),
        closing_(opening.Is('{') ? '}' : '>') {}

  // The bracket that closes it.
  Result<Token> Read(std::vector<SolverSetting>& settings) {
    Result<Token> token = tokens_.Next();
    while (token.ok() && !token->Is(closing_)) {
      if (token->kind == Kind::kEnd) {
        return At(line_, std::string(kSettingsBlock) + " is not closed");
      }
      if (token->Is(',') || token->Is(';')) {
        token = tokens_.Next();
        continue;
      }
      if (token->kind != Kind::kWord) {
        return At(token->line, "'" + std::string(token->text) +
                                   "' where a setting's name was expected");
      }
      token = ReadValue(*token, settings);
    }
    return token;
  }

 private:
  // The first token after the value.
  Result<Token> ReadValue(const Token& name,
                          std::vector<SolverSetting>& settings) {
    SolverSetting setting{std::string(name.text), "", name.line};
    Result<Token> token = tokens_.Next();
    if (!token.ok()) return token;
    if (!token->Is(':')) {
      return At(name.line, setting.name +
                               " has no value: settings are written "
                               "name: value");
    }
    token = tokens_.Next();
    if (!token.ok()) return token;
    if (token->kind == Kind::kWord) {
      setting.value = token->text;
      token = tokens_.Next();
    } else if (token->kind == Kind::kString) {
      // Strings that follow each other are one.
      while (token.ok() && token->kind == Kind::kString) {
        setting.value += Unquoted(token->text);
        token = tokens_.Next();
      }
    } else {
      return At(name.line, setting.name + " has no value");
    }
    for (const SolverSetting& other : settings) {
      if (other.name == setting.name) {
        return At(setting.line, setting.name + " was given in line " +
                                    std::to_string(other.line) + " already");
      }
    }
    settings.push_back(std::move(setting));
    return token;
  }

  Tokens& tokens_;
  const int line_;
  const char closing_;
};

}  // namespace

Result<SolverText> SolverText::Cut(std::string_view text) {
  SolverText cut{std::string(text), std::nullopt};
  Tokens tokens(text);
  int depth = 0;
  Result<Token> token = tokens.Next();
  while (token.ok() && token->kind != Kind::kEnd) {
    if (token->Is('{') || token->Is('<')) ++depth;
    if (token->Is('}') || token->Is('>')) --depth;
    if (depth != 0 || token->kind != Kind::kWord ||
        token->text != kSettingsBlock) {
      token = tokens.Next();
      continue;
    }
    const Token name = *token;
    if (cut.settings.has_value()) {
      return At(name.line, std::string(kSettingsBlock) + " is there twice");
    }
    token = tokens.Next();
    if (token.ok() && token->Is(':')) token = tokens.Next();
    if (!token.ok()) return token.error();
    if (!token->Is('{') && !token->Is('<')) {
      return At(name.line, std::string(kSettingsBlock) + " is a block: " +
                               std::string(kSettingsBlock) + " { }");
    }
    cut.settings.emplace();
    token = Block(tokens, *token).Read(*cut.settings);
    if (!token.ok()) return token.error();
    size_t end = token->end();
    token = tokens.Next();
    if (token.ok() && (token->Is(',') || token->Is(';'))) {
      end = token->end();
      token = tokens.Next();
    }
    for (size_t i = name.begin; i < end; ++i) {
      if (cut.plain[i] != '\n') cut.plain[i] = ' ';
    }
  }
  if (!token.ok()) return token.error();
  return cut;
}

}  // namespace tensorlightning
