// SPDX-License-Identifier: Apache-2.0

package template

// The most and the fewest arguments of Fn::And and Fn::Or.
const (
	minBooleans = 2
	maxBooleans = 10
)

// checkArguments refuses what CloudFormation refuses of the other functions before it evaluates them: those that it does not
// have, and a wrong number of arguments.
func (t *Template) checkArguments(name string, arg any) error {
	list, _ := arg.([]any)

	switch name {
	case "Ref", "Condition":
		return nil
	case "Fn::FindInMap":
		return t.checkFindInMap(list)
	case "Fn::Join":
		return errorUnless(isTextAndValue(list), errMalformedJoin())
	case "Fn::Split":
		return errorUnless(isTextAndValue(list), errMalformedSplit())
	case "Fn::Equals":
		return errorUnless(len(list) == 2, errMalformedEquals())
	case "Fn::Not":
		return errorUnless(len(list) == 1, errMalformedNot())
	case "Fn::And", "Fn::Or":
		return errorUnless(len(list) >= minBooleans && len(list) <= maxBooleans, errMalformedBooleans(name))
	}

	return errorUnless(intrinsicFunctions()[name] != nil, ErrorInTemplate("Encountered unsupported function: %s", name))
}

// isTextAndValue reports whether a list has two arguments, of which the first is a text.
func isTextAndValue(list []any) bool { return len(list) == 2 && isString(list[0]) }

// errorUnless returns err if ok is false.
func errorUnless(ok bool, err error) error {
	if ok {
		return nil
	}

	return err
}

// checkFindInMap checks the argument of Fn::FindInMap: the name of a map and two keys. If none of them is a function, the map
// must have the value.
func (t *Template) checkFindInMap(list []any) error {
	if len(list) != 3 {
		return errMalformedFindInMap()
	}

	var at [3]string

	for i, e := range list {
		if IsFunction(e) {
			return nil
		}

		at[i], _ = ScalarText(e)
	}

	if _, ok := t.Mappings[at[0]][at[1]][at[2]]; !ok {
		return errNoMapping(at)
	}

	return nil
}

func errMalformedJoin() error {
	return ErrorInTemplate(
		"every Fn::Join object requires two parameters, (1) a string delimiter and (2) a list of strings to be joined " +
			"or a function that returns a list of strings (such as Fn::GetAZs) to be joined.",
	)
}

func errMalformedSplit() error {
	return ErrorInTemplate(
		"every Fn::Split object requires two parameters, (1) a string delimiter and (2) a string to be split or a " +
			"function that returns a string to be split.",
	)
}

func errMalformedEquals() error {
	return ErrorInTemplate("every Fn::Equals object requires a list of 2 string parameters.")
}

func errMalformedNot() error {
	return ErrorInTemplate("every Fn::Not object requires one boolean parameter.")
}

func errMalformedBooleans(name string) error {
	return ErrorInTemplate(
		"every %s object requires a list of at least %d and at most %d boolean parameters.",
		name,
		minBooleans,
		maxBooleans,
	)
}

func errMalformedFindInMap() error {
	return ErrorInTemplate(
		"every Fn::FindInMap object requires three parameters, the map name, map key and the attribute for return value",
	)
}

func errNoMapping(at [3]string) error {
	return ErrorInTemplate("Unable to get mapping for %s::%s::%s", at[0], at[1], at[2])
}
