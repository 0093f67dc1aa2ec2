// SPDX-License-Identifier: Apache-2.0

package yamltext

import "strings"

// description is a problem in plain words.
type description struct {
	message, hint string
	// atContext: the place to correct is where the construct began, not where the parser noticed.
	atContext bool
	// isNoText: the document contains bytes that are not text.
	isNoText bool
}

// describe returns a message of the YAML library, with the construct that it was in, in plain words.
func describe(message, context string) description {
	switch {
	case strings.Contains(message, "mapping values are not allowed"):
		return description{
			message: `has a second ": " where only one value can be`,
			hint:    "check the indentation of this line and of the line above, or put the value in quotes",
		}
	case strings.Contains(context, "block mapping"), strings.Contains(context, "block collection"):
		return description{
			message: "has a line whose indentation does not match the lines above",
			hint:    "indent the fields of a mapping, and the dashes of a list, alike",
		}
	case strings.Contains(message, "could not find expected ':'"):
		return description{
			message: "has a field without a colon",
			hint:    `write NAME: VALUE, with a space after the colon`,
		}
	case strings.Contains(context, "flow sequence"):
		return description{
			message:   "has a list that is not closed",
			hint:      "add the missing , or ]",
			atContext: true,
		}
	case strings.Contains(context, "flow mapping"):
		return description{
			message:   "has a mapping that is not closed",
			hint:      "add the missing , or }",
			atContext: true,
		}
	case strings.Contains(context, "quoted scalar"):
		return describeQuoted(message)
	case strings.Contains(message, "unknown anchor"), strings.Contains(message, "undefined alias"):
		return description{
			message: "refers to an anchor that is not defined above",
			hint:    "define it with &NAME, or quote the value if * is part of it",
		}
	case strings.Contains(message, "cannot start any token"):
		return description{
			message: "has a character that cannot begin a value",
			hint:    "put the value in quotes",
		}
	}

	return describeContent(message)
}

// describeContent describes what the construct around it does not explain.
func describeContent(message string) description {
	switch {
	case strings.Contains(message, "control characters"), strings.Contains(message, "UTF-"):
		return description{
			message:  "has bytes that are not text in UTF-8",
			hint:     "save the file as UTF-8 text",
			isNoText: true,
		}
	case strings.Contains(message, "block sequence entries"), strings.Contains(message, "block collections"):
		return description{
			message: "has a dash where no list can begin",
			hint:    "put the list on lines of its own, below its field",
		}
	case strings.Contains(message, "did not find expected node content"):
		return description{
			message: "has no value where one is expected",
			hint:    "add the value, or remove the comma or bracket",
		}
	}

	return description{
		message: "is not valid YAML: " + message,
		hint:    "check the indentation and the quotes of this line and of the line above",
	}
}

// describeQuoted describes a problem of a text in quotes.
func describeQuoted(message string) description {
	if strings.Contains(message, "escape") {
		return description{
			message: "has an unknown escape after a backslash",
			hint:    `use single quotes, or write \\ for a backslash`,
		}
	}

	return description{
		message:   "has a quote that is not closed",
		hint:      "add the closing quote",
		atContext: true,
	}
}
