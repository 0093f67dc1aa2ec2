// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"os"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
)

const (
	externalDNS     = "external-dns"
	externalDNSRole = rolePrefix + "kube-system." + externalDNS + ".us-east-1"
	externalDNSFile = "../../examples/addons/" + externalDNS + "-policy.json"
)

// externalDNSPolicy returns the policy of examples/addons for a zone.
func externalDNSPolicy(l *lab, zone string) string {
	l.Helper()
	text, err := os.ReadFile(externalDNSFile)
	l.check(err)

	return strings.ReplaceAll(string(text), "ZONE", zone)
}

// createZone creates a hosted zone as the account's root, and returns its id.
func (l *lab) createZone(name string) string {
	l.Helper()
	out, err := route53.NewFromConfig(l.config(caller{})).CreateHostedZone(l.Context(), &route53.CreateHostedZoneInput{Name: &name, CallerReference: &name})
	l.check(err)

	return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

// TestExternalDNSIsLimited: with the role of the channel, only addresses and names in the zone of Services can be changed: no other
// zone, such as that of the API, and no delegation of a part of the zone to somebody else's name servers. Never open: the role's
// policy and this test were made together.
func TestExternalDNSIsLimited(t *testing.T) {
	p := newPodLab(t)
	zone := p.createZone("services.example.com")
	other := p.createZone("api.example.com")
	p.startAccount("kube-system", externalDNS, externalDNSPolicy(p.lab, zone), []any{map[string]any{"Effect": "Allow", "Action": "route53:*", "Resource": "*"}})
	c := p.assumeAs(externalDNSRole, "kube-system", externalDNS)
	mine := route53.NewFromConfig(p.config(c))

	change := func(zone, name string, kind types.RRType, value string) error {
		_, err := mine.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{
			HostedZoneId: &zone,
			ChangeBatch: &types.ChangeBatch{Changes: []types.Change{{
				Action: types.ChangeActionUpsert,
				ResourceRecordSet: &types.ResourceRecordSet{
					Name: &name, Type: kind, TTL: sdk.Int64(60), ResourceRecords: []types.ResourceRecord{{Value: &value}},
				},
			}}},
		})

		return err
	}
	p.check(change(zone, "web.services.example.com", types.RRTypeA, "192.0.2.1"))
	p.check(change(zone, "web.services.example.com", types.RRTypeTxt, `"heritage=external-dns"`))

	p.denied("change a record of another zone", change(other, "prod.api.example.com", types.RRTypeA, "192.0.2.1"))
	p.denied("delegate a name to other name servers", change(zone, "web2.services.example.com", types.RRTypeNs, "ns.example.net."))
	p.denied("have certificates issued by anybody", change(zone, "services.example.com", types.RRTypeCaa, `0 issue "ca.example.net"`))
	_, err := mine.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &other})
	p.denied("read the records of another zone", err)
	_, err = mine.DeleteHostedZone(t.Context(), &route53.DeleteHostedZoneInput{Id: &zone})
	p.denied("delete the zone", err)
	_, err = mine.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: sdk.String("example.net"), CallerReference: sdk.String("1")})
	p.denied("create a zone", err)
}
