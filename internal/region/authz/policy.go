// SPDX-License-Identifier: Apache-2.0

// Package authz parses IAM policy documents and evaluates them. A [Policy] has statements; [Evaluate] evaluates
// policies for one [Request], that is, one action on one resource, and returns a [Decision]. The package does
// not know who has which policies, and does no I/O.
package authz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PolicyKind is the kind of entity that a policy belongs to. It determines the elements of the policy's
// statements.
type PolicyKind int

// The kinds of policies.
const (
	IdentityPolicy PolicyKind = iota // of a role or user: without Principal
	ResourcePolicy                   // of a bucket or key: with Principal and Resource
	TrustPolicy                      // of a role: with Principal and without Resource
)

// Policy is a parsed policy document. It is immutable.
type Policy struct {
	Version    string // 2012-10-17 or 2008-10-17; only the first has policy variables
	Statements []Statement
}

// Statement is one statement of a policy. Elements that the document does not have are nil.
type Statement struct {
	Sid          string      // statement ID; empty for none
	Allow        bool        // the Effect is Allow, not Deny
	Principal    Principals  // nil for policies of identities
	NotPrincipal Principals  // everyone but these
	Action       []string    // patterns, such as ec2:Describe*
	NotAction    []string    // patterns; every action but these
	Resource     []string    // patterns of ARNs
	NotResource  []string    // patterns of ARNs; every resource but these
	Conditions   []Condition // all must be met; sorted by operator and key
}

// Principals are the principals of a statement by type: AWS, Service, Federated or CanonicalUser.
// "Principal": "*" is AWS: ["*"].
type Principals map[string][]string

// Condition is one condition of a statement. It is met if the value of the key matches one of the values.
type Condition struct {
	Operator string   // such as StringEquals or ForAnyValue:StringLike
	Key      string   // condition key, such as aws:SourceIp; case does not matter
	Values   []string // at least one; numbers and booleans as text
}

// rawStatement is a statement as it is in the document.
type rawStatement struct {
	Sid          string                           `json:"Sid"`
	Effect       string                           `json:"Effect"`
	Principal    json.RawMessage                  `json:"Principal"`
	NotPrincipal json.RawMessage                  `json:"NotPrincipal"`
	Action       stringList                       `json:"Action"`
	NotAction    stringList                       `json:"NotAction"`
	Resource     stringList                       `json:"Resource"`
	NotResource  stringList                       `json:"NotResource"`
	Condition    map[string]map[string]scalarList `json:"Condition"`
}

// stringList is a string or a list of strings.
type stringList []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *stringList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil && string(b) != "null" {
		*t = stringList{one}
		return nil
	}

	var many []string
	if err := json.Unmarshal(b, &many); err != nil || many == nil {
		return errors.New("expected a string or a list of strings")
	}

	*t = many

	return nil
}

// scalarList is a string, number or boolean, or a list of them.
type scalarList []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scalarList) UnmarshalJSON(b []byte) error {
	var many []json.RawMessage
	if err := json.Unmarshal(b, &many); err != nil {
		many = []json.RawMessage{b}
	}

	*s = scalarList{}

	for _, raw := range many {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return err
		}

		switch x := v.(type) {
		case string:
			*s = append(*s, x)
		case json.Number, bool:
			*s = append(*s, fmt.Sprint(x))
		default:
			return errors.New("expected a string, number or boolean, or a list of them")
		}
	}

	return nil
}

// ErrSyntax is the error of a document that is not JSON, or whose elements a policy does not have.
var ErrSyntax = errors.New("syntax errors in policy")

// StatementError is an error in one statement of a policy.
type StatementError struct {
	Number int   // of the statement, from 1
	Err    error // what is wrong with it
}

// Error implements error.
func (e *StatementError) Error() string { return fmt.Sprintf("statement %d: %v", e.Number, e.Err) }

// Unwrap returns what is wrong with the statement.
func (e *StatementError) Unwrap() error { return e.Err }

// ServiceMessage returns the message of IAM's error MalformedPolicyDocument for an error of [ParsePolicy].
func ServiceMessage(err error) string {
	if errors.Is(err, ErrSyntax) {
		return "Syntax errors in policy."
	}

	if e, ok := errors.AsType[*StatementError](err); ok {
		err = e.Err
	}

	text := err.Error()
	if text == "" {
		return text
	}

	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// ParsePolicy parses a policy document. Unknown elements, and elements that a policy of this kind cannot have, are
// errors, whose message in AWS is that of [ServiceMessage].
func ParsePolicy(kind PolicyKind, document string) (Policy, error) {
	var raw struct {
		Version   string          `json:"Version"`
		ID        string          `json:"Id"`
		Statement json.RawMessage `json:"Statement"`
	}
	if err := decodeStrict([]byte(document), &raw); err != nil {
		return Policy{}, fmt.Errorf("%w: %w", ErrSyntax, err)
	}

	switch raw.Version {
	case "":
		raw.Version = "2008-10-17" // IAM's default, which has no policy variables
	case "2012-10-17", "2008-10-17":
	default:
		return Policy{}, errors.New("the policy must contain a valid version string")
	}

	statements, err := splitStatements(raw.Statement)
	if err != nil {
		return Policy{}, err
	}

	p := Policy{Version: raw.Version}
	sids := map[string]bool{}

	for i, b := range statements {
		s, err := parseStatement(kind, b)
		if err != nil {
			return Policy{}, &StatementError{Number: i + 1, Err: err}
		}

		if s.Sid != "" && sids[s.Sid] {
			return Policy{}, fmt.Errorf("statement IDs (SID) in a single policy must be unique: %s", s.Sid)
		}

		sids[s.Sid] = true
		p.Statements = append(p.Statements, s)
	}

	return p, nil
}

// splitStatements returns the statements of a policy, which are a list or a single statement.
func splitStatements(raw json.RawMessage) ([]json.RawMessage, error) {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return nil, errors.New("missing required field Statement")
	}

	if trimmed[0] != '[' {
		return []json.RawMessage{trimmed}, nil
	}

	var statements []json.RawMessage
	if err := json.Unmarshal(trimmed, &statements); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}

	if len(statements) == 0 {
		return nil, errors.New("policy statement must contain at least one statement")
	}

	return statements, nil
}

// decodeStrict decodes one JSON object. Unknown fields and text after the object are errors.
func decodeStrict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the document")
	}

	return nil
}

func parseStatement(kind PolicyKind, b []byte) (Statement, error) {
	var raw rawStatement
	if err := decodeStrict(b, &raw); err != nil {
		return Statement{}, fmt.Errorf("%w: %w", ErrSyntax, err)
	}

	s := Statement{
		Sid:         raw.Sid,
		Action:      raw.Action,
		NotAction:   raw.NotAction,
		Resource:    raw.Resource,
		NotResource: raw.NotResource,
	}

	if raw.Action != nil && raw.NotAction != nil || raw.Resource != nil && raw.NotResource != nil {
		return Statement{}, fmt.Errorf("%w: an element and its negation", ErrSyntax)
	}

	switch raw.Effect {
	case "Allow":
		s.Allow = true
	case "Deny":
	default:
		return s, fmt.Errorf("invalid effect: %q", raw.Effect)
	}

	var err error
	if s.Principal, err = parsePrincipals(raw.Principal); err != nil {
		return s, fmt.Errorf("principal: %w", err)
	}

	if s.NotPrincipal, err = parsePrincipals(raw.NotPrincipal); err != nil {
		return s, fmt.Errorf("not principal: %w", err)
	}

	if err := s.validateElements(kind); err != nil {
		return s, err
	}

	s.Conditions, err = parseConditions(raw.Condition)

	return s, err
}

func parsePrincipals(b json.RawMessage) (Principals, error) {
	if len(b) == 0 {
		return nil, nil
	}

	if string(b) == `"*"` {
		return Principals{"AWS": {"*"}}, nil
	}

	var byType map[string]stringList
	if err := json.Unmarshal(b, &byType); err != nil || len(byType) == 0 {
		return nil, errors.New(`must be "*" or an object of AWS, Service or Federated`)
	}

	out := Principals{}

	for kind, names := range byType {
		if !slices.Contains([]string{"AWS", "Service", "Federated", "CanonicalUser"}, kind) {
			return nil, fmt.Errorf("invalid principal type %q", kind)
		}

		out[kind] = names
	}

	return out, nil
}

// validateElements checks that a statement has the elements of its kind of policy, and no others.
func (s Statement) validateElements(kind PolicyKind) error {
	principals := countTrue(s.Principal != nil, s.NotPrincipal != nil)
	resources := countTrue(len(s.Resource) > 0, len(s.NotResource) > 0)
	switch {
	case countTrue(len(s.Action) > 0, len(s.NotAction) > 0) != 1:
		return errors.New("policy statement must contain actions")
	case kind == IdentityPolicy && principals > 0:
		return errors.New("policy document should not specify a principal")
	case kind != IdentityPolicy && principals != 1:
		return errors.New("missing required field Principal")
	case kind == TrustPolicy && resources > 0:
		return errors.New("has prohibited field Resource")
	case kind != TrustPolicy && resources != 1:
		return errors.New("policy statement must contain resources")
	}

	if err := s.validateNotPrincipal(kind); err != nil {
		return err
	}

	return s.validateNames()
}

// validateNotPrincipal checks that a statement has NotPrincipal only where AWS supports it.
func (s Statement) validateNotPrincipal(kind PolicyKind) error {
	switch {
	case s.NotPrincipal == nil:
		return nil
	case kind == TrustPolicy:
		return errors.New("has prohibited field NotPrincipal")
	case s.Allow:
		return errors.New("NotPrincipal must be used with the effect Deny")
	}

	return nil
}

// validateNames checks the form of a statement's actions and resources.
func (s Statement) validateNames() error {
	for _, a := range slices.Concat(s.Action, s.NotAction) {
		service, name, ok := strings.Cut(a, ":")

		switch {
		case a == "*":
		case !ok || service == "" || name == "" || strings.ContainsAny(a, " \t\n"):
			return errors.New("actions/conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc")
		case strings.Contains(name, ":"):
			return errors.New("actions/Condition can contain only one colon")
		}
	}

	for _, r := range slices.Concat(s.Resource, s.NotResource) {
		if r == "*" {
			continue
		}

		if err := validateResource(r); err != nil {
			return err
		}
	}

	return nil
}

// validateResource checks the form of a resource other than "*".
func validateResource(r string) error {
	parts := strings.SplitN(r, ":", 6)
	if parts[0] != "arn" || len(parts) < 6 && r != "arn:*" && !strings.Contains(r, "*") {
		return fmt.Errorf(`resource %s must be in ARN format or "*"`, r)
	}

	if len(parts) < 6 {
		return nil
	}

	return validateARNParts(r, parts)
}

// matchesPartition reports whether a pattern matches a partition of AWS.
func matchesPartition(pattern string) bool {
	return slices.ContainsFunc([]string{
		"aws",
		"aws-cn",
		"aws-us-gov",
		"aws-iso",
		"aws-iso-b",
		"aws-iso-e",
		"aws-iso-f",
		"aws-eusc",
	}, func(name string) bool { return MatchPattern(pattern, name) })
}

// validateARNParts checks the partition, the region and the path of an ARN.
func validateARNParts(r string, parts []string) error {
	partition := parts[1]
	service := parts[2]

	switch {
	case !matchesPartition(partition):
		return fmt.Errorf("partition %q is not valid for resource %q", partition, r)
	case service == "" && partition != "*":
		return errors.New("the policy failed legacy parsing")
	case parts[3] != "" && parts[3] != "*" && (service == "iam" || service == "s3" && !isAccessPoint(parts[5])):
		return fmt.Errorf("%s resource %s cannot contain region information", strings.ToUpper(service), r)
	case service == "iam" && !isIAMPath(parts[5]):
		return errors.New(
			`IAM resource path must either be "*" or start with user/, federated-user/, role/, group/, ` +
				"instance-profile/, mfa/, server-certificate/, policy/, sms-mfa/, saml-provider/, oidc-provider/, " +
				"report/, access-report/",
		)
	}

	return nil
}

// isAccessPoint reports whether the last part of an ARN of S3 is an access point, which has a region.
func isAccessPoint(path string) bool { return strings.HasPrefix(path, "accesspoint/") }

// isIAMPath reports whether the last part of an ARN of IAM is one that IAM has.
func isIAMPath(path string) bool {
	if path == "*" || path == "root" {
		return true
	}

	kind, _, ok := strings.Cut(path, "/")

	return ok && slices.Contains([]string{
		"user",
		"federated-user",
		"role",
		"group",
		"instance-profile",
		"mfa",
		"server-certificate",
		"policy",
		"sms-mfa",
		"saml-provider",
		"oidc-provider",
		"report",
		"access-report",
	}, kind) || strings.HasSuffix(kind, "*")
}

// countTrue returns the number of flags that are true.
func countTrue(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}

	return n
}

// validateDates checks the values of a condition that compares dates. Variables are known only when a request is
// evaluated.
func validateDates(operator string, values []string) error {
	_, base := cutSetPrefix(operator)
	if !strings.HasPrefix(base, "Date") {
		return nil
	}

	for _, v := range values {
		if _, ok := parseDate(v); !ok && !strings.Contains(v, "${") {
			return errors.New("the policy failed legacy parsing")
		}
	}

	return nil
}

func parseConditions(raw map[string]map[string]scalarList) ([]Condition, error) {
	var out []Condition
	for operator, keys := range raw {
		if !isKnownOperator(operator) {
			return nil, fmt.Errorf("invalid condition type: %s", operator)
		}

		for key, values := range keys {
			if key == "" || len(values) == 0 {
				return nil, fmt.Errorf("a condition with the operator %s has no key or no value", operator)
			}

			if err := validateDates(operator, values); err != nil {
				return nil, err
			}

			out = append(out, Condition{Operator: operator, Key: key, Values: values})
		}
	}

	slices.SortFunc(
		out,
		func(a, b Condition) int { return strings.Compare(a.Operator+a.Key, b.Operator+b.Key) },
	)

	return out, nil
}
