// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/kmskey"
)

// checkAdoptedKey returns an error if others may be able to use a key that has the tags of the cluster and no alias. Whoever
// may create keys can give one the tags of a cluster that has no key yet. A key that is to be deleted is not checked, and
// neither is one for a command that reads no details.
func checkAdoptedKey(ctx context.Context, api keyAPI, key plan.ActualResource) error {
	found, ok := key.Resource.(awskind.KMSKey)
	if !ok || omitsDetails(ctx) || strings.Contains(string(key.Addr), "@") {
		return nil
	}

	reason, err := findOtherUsers(ctx, api, key.ID, found.Policy)
	if err != nil || reason == "" {
		return err
	}

	return diag.WithHint(
		fmt.Errorf("the KMS key %s has the tags of the cluster and no alias, and %s", key.ID, reason),
		"find out who created the key: remove its tags if it is not the cluster's, or give it the alias of the cluster's key if it is",
	)
}

// findOtherUsers returns by what others may be able to use a key; empty if by nothing.
func findOtherUsers(ctx context.Context, api keyAPI, id string, policy graph.JSON) (string, error) {
	meta, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &id})
	if err != nil {
		return "", transport.Wrap(err, "read key %s", id)
	}

	if reason := kmskey.FindOtherUse(meta.KeyMetadata); reason != "" {
		return reason, nil
	}

	if !isClusterKeyPolicy(policy) {
		return "its key policy is not that of a cluster's key", nil
	}

	grantee, err := findGrantee(ctx, api, meta.KeyMetadata)
	if err != nil || grantee == "" {
		return "", err
	}

	return fmt.Sprintf("it has a grant for %q", grantee), nil
}

// findGrantee returns to whom a grant gives the use of a key; empty if to nobody but services of AWS: EC2 has grants for the
// volumes of machines, and the service-linked role of Auto Scaling may have one.
func findGrantee(ctx context.Context, api keyReadAPI, meta *kmstypes.KeyMetadata) (string, error) {
	id := aws.ToString(meta.KeyId)
	account := aws.ToString(meta.AWSAccountId)
	grantee, err := kmskey.FindGrantee(ctx, api, id, func(principal string) bool {
		return isServiceGrantee(principal, account)
	})

	return grantee, transport.Wrap(err, "list the grants of key %s", id)
}

// isServiceGrantee reports whether only AWS can be a principal of an account: the session of EC2 for an instance, whose role's
// name has a colon, as none of a customer can, or a service-linked role, below a path that is AWS's. The whole beginning of the
// ARN decides: the path of a customer's role may contain nearly anything.
func isServiceGrantee(principal, account string) bool {
	partition, rest, found := strings.Cut(strings.TrimPrefix(principal, "arn:"), ":")
	isARN := found && strings.HasPrefix(partition, "aws") && len(account) > 0

	return isARN && (strings.HasPrefix(rest, "sts::"+account+":assumed-role/aws:ec2-infrastructure/") ||
		strings.HasPrefix(rest, "iam::"+account+":role/aws-service-role/"))
}

// isClusterKeyPolicy reports whether each statement of a key policy, without that of a new key, is one of a cluster's key:
// that which leaves access to IAM, and that for the calls of EC2.
func isClusterKeyPolicy(policy graph.JSON) bool {
	var p struct {
		Statement []struct {
			Effect    string
			Principal map[string]string
			Action    any
			Condition map[string]map[string]string
		}
	}
	account := accountOfPolicy(policy)
	if account == "" || json.Unmarshal([]byte(policy), &p) != nil {
		return false
	}

	for _, s := range p.Statement {
		isRoot := len(s.Principal) == 1 && strings.HasSuffix(s.Principal["AWS"], ":iam::"+account+":root")
		equal := s.Condition["StringEquals"]
		isEC2 := equal["kms:CallerAccount"] == account && strings.HasPrefix(equal["kms:ViaService"], "ec2.")
		if s.Effect != "Allow" || !isRoot && !isEC2 {
			return false
		}
	}

	return true
}
