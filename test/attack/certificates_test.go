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
	certManager     = "cert-manager"
	certManagerRole = rolePrefix + certManager + "." + certManager + ".us-east-1"
	certManagerFile = "../../examples/addons/" + certManager + "-policy.json"
)

// certManagerPolicy returns the policy of examples/addons for a zone.
func certManagerPolicy(l *lab, zone string) string {
	l.Helper()
	text, err := os.ReadFile(certManagerFile)
	l.check(err)

	return strings.ReplaceAll(string(text), "ZONE", zone)
}

// recordChange is a change of one record of text or an address.
func recordChange(action types.ChangeAction, name string, kind types.RRType, value string) types.Change {
	return types.Change{
		Action: action,
		ResourceRecordSet: &types.ResourceRecordSet{
			Name: &name, Type: kind, TTL: sdk.Int64(60), ResourceRecords: []types.ResourceRecord{{Value: &value}},
		},
	}
}

// TestCertManagerIsLimited: with the role of the channel, only the answers to ACME's challenges can be written in the zone: no
// addresses, no other texts, such as those that say who may send mail, and nothing together with an answer. Never open: the role's
// policy and this test were made together.
func TestCertManagerIsLimited(t *testing.T) {
	p := newPodLab(t)
	zone := p.createZone("services.example.com")
	other := p.createZone("api.example.com")
	p.startAccount(certManager, certManager, certManagerPolicy(p.lab, zone), []any{map[string]any{"Effect": "Allow", "Action": "route53:*", "Resource": "*"}})
	c := p.assumeAs(certManagerRole, certManager, certManager)
	mine := route53.NewFromConfig(p.config(c))

	change := func(zone string, changes ...types.Change) (*route53.ChangeResourceRecordSetsOutput, error) {
		return mine.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{
			HostedZoneId: &zone, ChangeBatch: &types.ChangeBatch{Changes: changes},
		})
	}
	denied := func(what, zone string, changes ...types.Change) {
		t.Helper()
		_, err := change(zone, changes...)
		p.denied(what, err)
	}
	const challenge = "_acme-challenge.services.example.com"
	answer := recordChange(types.ChangeActionUpsert, challenge, types.RRTypeTxt, `"token"`)

	// What cert-manager does: write the answer, wait for it, delete it; also for a name below the zone's.
	written, err := change(zone, answer)
	p.check(err)
	_, err = mine.GetChange(t.Context(), &route53.GetChangeInput{Id: written.ChangeInfo.Id})
	p.check(err)
	_, err = change(zone, recordChange(types.ChangeActionUpsert, "_ACME-Challenge.web.services.example.com.", types.RRTypeTxt, `"token"`))
	p.check(err)
	_, err = change(zone, recordChange(types.ChangeActionDelete, challenge, types.RRTypeTxt, `"token"`))
	p.check(err)

	address := recordChange(types.ChangeActionUpsert, "web.services.example.com", types.RRTypeA, "192.0.2.1")
	denied("change an address", zone, address)
	denied("change an address together with an answer", zone, answer, address)
	denied("change another text", zone, recordChange(types.ChangeActionUpsert, "services.example.com", types.RRTypeTxt, `"v=spf1 +all"`))
	denied("change a text below another name", zone, recordChange(types.ChangeActionUpsert, "x._acme-challenge.services.example.com", types.RRTypeTxt, `"x"`))
	denied("change a text whose name begins like a challenge's", zone, recordChange(types.ChangeActionUpsert, "_acme-challenges.services.example.com", types.RRTypeTxt, `"x"`))
	denied("delegate the name of a challenge", zone, recordChange(types.ChangeActionUpsert, challenge, types.RRTypeNs, "ns.example.net."))
	denied("point the name of a challenge elsewhere", zone, recordChange(types.ChangeActionUpsert, challenge, types.RRTypeCname, "x.example.net"))
	denied("create instead of replace", zone, recordChange(types.ChangeActionCreate, challenge, types.RRTypeTxt, `"x"`))
	denied("answer a challenge in another zone", other, recordChange(types.ChangeActionUpsert, "_acme-challenge.api.example.com", types.RRTypeTxt, `"x"`))
	_, err = mine.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &zone})
	p.denied("read the records of the zone", err)
	_, err = mine.ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
	p.denied("list zones", err)
	_, err = mine.DeleteHostedZone(t.Context(), &route53.DeleteHostedZoneInput{Id: &zone})
	p.denied("delete the zone", err)
}
