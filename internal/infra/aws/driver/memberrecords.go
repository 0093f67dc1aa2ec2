// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// memberRecord matches the names, relative to their zone, of the records of etcd's members. A Lambda function keeps them; see
// docs/design/0024-dns-function.md.
var memberRecord = regexp.MustCompile(`^(A etcd-[a-z]|SRV _etcd-(server|client)-ssl\._tcp)$`)

// deleteZone deletes a zone of the cluster. A run of the function for etcd's members that was late may have written its records again
// after the function has removed them: then they are removed once more. Other records keep the zone.
func deleteZone(ctx context.Context, api zoneAPI, id, name string) error {
	isNotEmpty := func(err error) bool { return transport.ErrorCode(err) == "HostedZoneNotEmpty" }
	remove := func() error {
		_, err := api.DeleteHostedZone(ctx, &route53.DeleteHostedZoneInput{Id: &id})
		return transport.Wrap(err, "delete zone %s", name)
	}

	err := remove()
	if isNotEmpty(err) {
		if removed, removeErr := removeMemberRecords(ctx, api, id, name); removeErr == nil && removed {
			err = remove()
		}
	}

	if isNotEmpty(err) {
		return explainNotEmpty(ctx, api, id, err)
	}

	return err
}

// removeMemberRecords deletes the records of etcd's members in a zone. It reports whether there were any.
func removeMemberRecords(ctx context.Context, api recordAPI, id, zone string) (bool, error) {
	suffix := "." + strings.TrimSuffix(zone, ".") + "."
	var changes []r53types.Change
	err := WalkRecords(ctx, api, id, func(r r53types.ResourceRecordSet) {
		relative, inZone := strings.CutSuffix(aws.ToString(r.Name), suffix)
		if inZone && memberRecord.MatchString(string(r.Type)+" "+relative) {
			changes = append(changes, r53types.Change{Action: r53types.ChangeActionDelete, ResourceRecordSet: &r})
		}
	})
	if err != nil || len(changes) == 0 {
		return false, err
	}

	_, err = api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &id,
		ChangeBatch:  &r53types.ChangeBatch{Changes: changes},
	})

	return true, transport.Wrap(err, "delete the records of etcd's members in zone %s", zone)
}
