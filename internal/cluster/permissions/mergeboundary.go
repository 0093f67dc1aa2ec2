// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// The states of the boundary in AWS.
const (
	BoundaryCurrent  = "current"
	BoundaryOutdated = "outdated"
	BoundaryMissing  = "missing"
	BoundaryNotRead  = "not read"
)

// Boundary is a permissions boundary of machines with the statements that an administrator added to it.
type Boundary struct {
	// State of the one in AWS.
	State string
	// Outdated are the Sids of Slipway's statements that the one in AWS lacks, or has otherwise, in Slipway's order, and then
	// of those that it has and that only earlier versions needed.
	Outdated []string
	// Added are the Sids of the statements that are none of Slipway's, in the order of the policy.
	Added []string
	// Document has Slipway's statements as this version needs them, and the added ones.
	Document BoundaryDocument
}

// BoundaryDocument is the document of a boundary. Its statements are as AWS has them, since people write theirs in forms
// that Slipway does not.
type BoundaryDocument struct {
	// Version of IAM's policy language.
	Version string
	// Statement is one statement each.
	Statement []map[string]any
}

// Size returns the number of characters that AWS counts.
func (d BoundaryDocument) Size() int {
	text, err := json.Marshal(d)
	if err != nil {
		return 0 // cannot happen: it was decoded from JSON
	}

	return len(strings.Join(strings.Fields(string(text)), ""))
}

// BuildBoundary returns the boundary of the last store of in, without reading AWS.
func BuildBoundary(in iampolicy.Input) (Boundary, error) {
	document, err := buildBoundaryDocument(in)

	return Boundary{State: BoundaryNotRead, Document: document}, err
}

func buildBoundaryDocument(in iampolicy.Input) (BoundaryDocument, error) {
	policy := iampolicy.BuildBoundary(in, in.Stores[len(in.Stores)-1])
	if in.IsKarpenterBoundary {
		policy = iampolicy.BuildKarpenterBoundary(in)
	}

	text, err := json.Marshal(policy)
	if err != nil {
		return BoundaryDocument{}, fmt.Errorf("encode the permissions boundary: %w", err)
	}

	var out BoundaryDocument
	if err := json.Unmarshal(text, &out); err != nil {
		return BoundaryDocument{}, fmt.Errorf("encode the permissions boundary: %w", err)
	}

	return out, nil
}

// ReadBoundary compares the boundary in AWS of the last store of in with the one that this version of Slipway needs.
func ReadBoundary(ctx context.Context, cfg sdk.Config, in iampolicy.Input) (Boundary, error) {
	document, err := buildBoundaryDocument(in)
	if err != nil {
		return Boundary{}, err
	}

	text, err := readPolicy(ctx, iam.NewFromConfig(cfg), in.Boundary)
	if _, missing := errors.AsType[*iamtypes.NoSuchEntityException](err); missing {
		return Boundary{State: BoundaryMissing, Document: document}, nil
	}

	if err != nil {
		return Boundary{}, fmt.Errorf("read policy %s: %w", in.Boundary, err)
	}

	return mergeBoundary(document, text, in.Stores[len(in.Stores)-1])
}

// readPolicy returns the document of the default version of a managed policy.
func readPolicy(ctx context.Context, api *iam.Client, arn string) (string, error) {
	policy, err := api.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: &arn})
	if err != nil {
		return "", err
	}

	version, err := api.GetPolicyVersion(ctx, &iam.GetPolicyVersionInput{
		PolicyArn: &arn,
		VersionId: policy.Policy.DefaultVersionId,
	})
	if err != nil {
		return "", err
	}

	return url.PathUnescape(sdk.ToString(version.PolicyVersion.Document)) // RFC 3986
}

// mergeBoundary adds the statements of a document in AWS that are none of Slipway's, of this version or an earlier one, and the
// objects of other stores in the bucket of st, to the document that this version needs.
func mergeBoundary(document BoundaryDocument, text string, st iampolicy.StoreLocation) (Boundary, error) {
	var have struct{ Statement any }
	if err := json.Unmarshal([]byte(text), &have); err != nil {
		return Boundary{}, fmt.Errorf("the permissions boundary in AWS is not valid JSON: %w", err)
	}

	out := Boundary{State: BoundaryCurrent, Document: BoundaryDocument{Version: document.Version}}
	found := map[string]map[string]any{}
	var added []map[string]any
	var former []string

	for _, item := range listOf(have.Statement) {
		s, ok := item.(map[string]any)
		if !ok {
			continue
		}

		sid, _ := s["Sid"].(string)
		if slices.ContainsFunc(document.Statement, func(own map[string]any) bool { return own["Sid"] == sid }) {
			found[sid] = s
			continue
		}

		if isFormer(s) {
			former = append(former, sid)
			continue
		}

		out.Added = append(out.Added, sid)
		added = append(added, s)
	}

	for _, own := range document.Statement {
		sid, _ := own["Sid"].(string)
		own["Resource"] = withOtherStores(listOf(own["Resource"]), listOf(found[sid]["Resource"]), st)
		if !sameStatement(own, found[sid]) {
			out.Outdated = append(out.Outdated, sid)
		}

		out.Document.Statement = append(out.Document.Statement, own)
	}

	out.Document.Statement = append(out.Document.Statement, added...)
	if out.Outdated = append(out.Outdated, former...); len(out.Outdated) > 0 {
		out.State = BoundaryOutdated
	}

	return out, nil
}

// withOtherStores returns the resources of a statement, and those that are the same objects of another store in the bucket.
func withOtherStores(own, have []any, st iampolicy.StoreLocation) []any {
	out := slices.Clone(own)
	for _, item := range own {
		text, _ := item.(string)
		bucket, rest, found := strings.Cut(text, ":::"+st.Bucket+"/")
		object := strings.TrimPrefix(rest, strings.TrimSuffix(st.Prefix+"/", "/"))
		if !found || bucket == "" {
			continue
		}

		for _, other := range have {
			text, _ := other.(string)
			prefix, ok := strings.CutSuffix(text, object)
			if ok && strings.HasPrefix(prefix, bucket+":::"+st.Bucket) &&
				!strings.ContainsAny(prefix, "*?$") && !slices.Contains(out, other) {
				out = append(out, other)
			}
		}
	}

	return out
}

// listOf returns a value of a policy as a list: IAM allows a single one in its place.
func listOf(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	default:
		return []any{value}
	}
}

// sameStatement reports whether two statements say the same.
func sameStatement(one, other map[string]any) bool {
	return fmt.Sprint(normalize(one, "")) == fmt.Sprint(normalize(other, "")) // the keys of maps are printed in order
}

// normalize returns a value of a policy for a comparison: lists are sorted, and a single value is a list of one. The Sid and
// the effect are no lists.
func normalize(value any, key string) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range value {
			out[k] = normalize(v, k)
		}

		return out
	case []any:
		var out []string
		for _, v := range value {
			out = append(out, fmt.Sprint(v))
		}

		slices.Sort(out)

		return out
	default:
		if key == "Sid" || key == "Effect" {
			return value
		}

		return []string{fmt.Sprint(value)}
	}
}
