// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/test/referencedata"
)

// oneOrMany is a value of a policy that is a text or a list of texts.
type oneOrMany []string

func (v *oneOrMany) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*[]string)(v)); err == nil {
		return nil
	}

	*v = []string{""}

	return json.Unmarshal(text, &(*v)[0])
}

// referenceStatement is what the Service Authorization Reference says something about.
type referenceStatement struct {
	Sid       string
	Effect    string
	Action    oneOrMany
	Resource  oneOrMany
	Condition map[string]map[string]oneOrMany
}

// policyReference compares policies with the Service Authorization Reference.
type policyReference struct {
	referencedata.ServiceReference
}

// globalKeys are condition keys that every request has, or may have, whatever its action is:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
func globalKeys() []string {
	return []string{
		"aws:calledvia", "aws:principalaccount", "aws:principalarn", "aws:principaltag/", "aws:requestedregion",
		"aws:resourceaccount", "aws:securetransport", "aws:userid", "aws:username", "aws:viaawsservice",
	}
}

// knownDifferences are what the reference does not list and AWS has, with the source.
func knownDifferences() map[string]string {
	return map[string]string{}
}

// arnPattern returns a type's pattern of ARNs with stars in place of its variables.
func arnPattern(arn string) string {
	return regexp.MustCompile(`\$\{[A-Za-z]+\}`).ReplaceAllString(arn, "*")
}

// overlap reports whether some text matches both patterns; a star stands for any text.
func overlap(a, b string) bool {
	switch {
	case a == "" && b == "":
		return true
	case strings.HasPrefix(a, "*"):
		return overlap(a[1:], b) || b != "" && overlap(a, b[1:])
	case strings.HasPrefix(b, "*"):
		return overlap(b, a)
	}

	return a != "" && b != "" && a[0] == b[0] && overlap(a[1:], b[1:])
}

// check returns what is wrong with a statement: actions that do not exist or have none of the statement's resources, and
// condition keys that a request of the action never has.
func (r policyReference) check(s referenceStatement) []string {
	if s.Effect == "Deny" && slices.Equal(s.Action, []string{"*"}) && slices.Equal(s.Resource, []string{"*"}) {
		return checkGlobalKeys(s) // of all actions
	}

	var out []string
	for _, action := range s.Action {
		prefix, name, _ := strings.Cut(action, ":")
		service, ok := r.Services[prefix]
		if action == "*" || !ok {
			out = append(out, action+": its service is not in the reference; see hack/servicereference")
			continue
		}

		names := []string{name}
		if strings.Contains(name, "*") {
			names = matchingActions(service, name)
		}

		if len(names) == 0 {
			out = append(out, action+" does not exist")
		}

		for _, name := range names {
			a, ok := service.Actions[name]
			if !ok {
				out = append(out, action+" does not exist")
				continue
			}

			out = append(out, checkAction(action, service, a, s)...)
		}
	}

	return out
}

// checkGlobalKeys returns the condition keys of a statement that not every request has.
func checkGlobalKeys(s referenceStatement) []string {
	var out []string
	for _, conditions := range s.Condition {
		for key := range conditions {
			if !hasKey(globalKeys(), key) {
				out = append(out, "not every action has the condition key "+key)
			}
		}
	}

	return out
}

// matchingActions returns the actions of a service that a name with a star stands for.
func matchingActions(service referencedata.Service, name string) []string {
	pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, ".*") + "$")
	var out []string
	for action := range service.Actions {
		if pattern.MatchString(action) {
			out = append(out, action)
		}
	}

	slices.Sort(out)

	return out
}

func checkAction(name string, service referencedata.Service, a referencedata.Action, s referenceStatement) []string {
	keys := slices.Clone(a.Keys)
	matches := slices.Contains(s.Resource, "*")
	for kind, own := range a.Resources {
		resource := service.Resources[kind]
		pattern := arnPattern(resource.ARN)
		if slices.ContainsFunc(s.Resource, func(r string) bool { return overlap(r, pattern) }) {
			matches = true
			keys = append(append(keys, own...), resource.Keys...)
		}
	}

	if !matches {
		return []string{fmt.Sprintf("%s has none of the resources %s", name, strings.Join(s.Resource, ", "))}
	}

	var out []string
	for operator, conditions := range s.Condition {
		for key := range conditions {
			if strings.HasSuffix(operator, "IfExists") || operator == "Null" || strings.HasPrefix(operator, "ForAllValues:") {
				continue
			}

			if !hasKey(slices.Concat(keys, globalKeys()), key) && knownDifferences()[name+" "+key] == "" {
				out = append(out, fmt.Sprintf("%s has no condition key %s", name, key))
			}
		}
	}

	slices.Sort(out)

	return out
}

// hasKey reports whether a key is one of keys; some of them end with a variable or a slash for a name of the user.
func hasKey(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		before, _, isPattern := strings.Cut(strings.ToLower(k), "${")
		isPattern = isPattern || strings.HasSuffix(k, "/")

		return strings.EqualFold(k, key) || isPattern && strings.HasPrefix(strings.ToLower(key), before)
	})
}

// TestPoliciesFollowTheServiceReference compares the policies of operators, machines, functions and controllers, and the
// boundary, with AWS's Service Authorization Reference. A statement with a resource or key that its action does not know
// allows nothing, or denies nothing. No attack: a comparison with AWS.
func TestPoliciesFollowTheServiceReference(t *testing.T) {
	l := newPodLab(t).lab
	var r policyReference
	referencedata.ReadJSON(t, referencedata.ServiceReferenceFile, &r.ServiceReference)

	documents := map[string]string{}
	for name, policies := range map[string]any{
		"operator":                    l.policies("demo", "--allow-existing"),
		"reader":                      l.policies("demo", "--read-only", "--allow-existing"),
		"deletion":                    l.policies("demo", "--deletion"),
		"stack":                       l.policies("demo", "--stack"),
		"state init":                  l.policies("demo", "--state-init"),
		"operator with a function":    functionPolicies(),
		"operator in a VPC of others": existingPolicies(),
	} {
		text, err := json.Marshal(policies)
		l.check(err)
		documents[name] = string(text)
	}

	for _, file := range []string{"policy", "boundary"} {
		text, err := os.ReadFile(controllerFile + "-" + file + ".json")
		l.check(err)
		documents[controllerName+" "+file] = "[" + strings.ReplaceAll(string(text), "CLUSTER", "demo") + "]"
	}

	documents["EBS CSI driver"] = "[" + ebsPolicy(t) + "]"
	documents["Cluster Autoscaler"] = "[" + groupScalerPolicy(t) + "]"
	documents["controller of Ingresses"] = "[" + withoutStatement(t, ingressControllerPolicy(t, "vpc-0123456789abcdef0"), "ReadCertificates") + "]"
	l.addRoleDocuments(documents)

	statements := 0

	for name, text := range documents {
		var policies []struct{ Statement []referenceStatement }
		l.check(json.Unmarshal([]byte(text), &policies))

		for _, p := range policies {
			for _, s := range p.Statement {
				statements++
				for _, problem := range r.check(s) {
					t.Errorf("%s, statement %s: %s", name, s.Sid, problem)
				}
			}
		}
	}

	t.Logf("COUNT policies compared with the service reference: %d with %d statements", len(documents), statements)
}

// withoutStatement returns a policy without one of its statements, such as one about a service that the reference lacks.
func withoutStatement(t *testing.T, policy, sid string) string {
	t.Helper()
	var document struct {
		Version   string
		Statement []map[string]any
	}
	check(t, json.Unmarshal([]byte(policy), &document))
	document.Statement = slices.DeleteFunc(document.Statement, func(s map[string]any) bool { return s["Sid"] == sid })
	text, err := json.Marshal(document)
	check(t, err)

	return string(text)
}

// addRoleDocuments adds the boundary and the inline policies of all roles of the cluster.
func (l *lab) addRoleDocuments(documents map[string]string) {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	add := func(name, encoded string) {
		text, err := url.QueryUnescape(encoded)
		l.check(err)
		documents[name] = "[" + text + "]"
	}

	v, err := api.GetPolicyVersion(l.Context(), &iam.GetPolicyVersionInput{PolicyArn: sdk.String(boundary), VersionId: sdk.String("v1")})
	l.check(err)
	add("boundary", *v.PolicyVersion.Document)

	roles, err := api.ListRoles(l.Context(), &iam.ListRolesInput{PathPrefix: sdk.String(rolePath)})
	l.check(err)

	for _, role := range roles.Roles {
		names, err := api.ListRolePolicies(l.Context(), &iam.ListRolePoliciesInput{RoleName: role.RoleName})
		l.check(err)

		for _, name := range names.PolicyNames {
			p, err := api.GetRolePolicy(l.Context(), &iam.GetRolePolicyInput{RoleName: role.RoleName, PolicyName: &name})
			l.check(err)
			add(*role.RoleName+" "+name, *p.PolicyDocument)
		}
	}
}
