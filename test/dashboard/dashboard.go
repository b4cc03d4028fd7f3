// Package dashboard is the Grafana dashboard of Diapause as code. Its test renders it to
// manifests/components/dashboard. It is a module of its own, because only it needs Grafana's types and Prometheus'
// parser.
package dashboard

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// row is a question of an operator, with the panels that answer it.
type row struct {
	question string
	panels   []panel
}

// panel shows queries over time, or, with alarm, the last value of one.
type panel struct {
	title, about string
	unit         string  // of Grafana's list; empty: a number
	alarm        float64 // the value from which the panel is red
	width        uint32  // of 24
	queries      []query
}

// query is an expression of PromQL, and how its series are named.
type query struct {
	expr, legend string
}

// Heights of panels, in rows of the grid.
const (
	low  = 4
	high = 8
)

// Render returns the dashboard as Grafana reads it.
func Render() ([]byte, error) {
	d, err := build()
	if err != nil {
		return nil, fmt.Errorf("build the dashboard: %w", err)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// build makes the dashboard of all rows.
//
//lint:ignore SA1019 older versions of Grafana, and its sidecar's files, know no other schema than this.
func build() (dashboard.Dashboard, error) {
	//lint:ignore SA1019 as above
	b := dashboard.NewDashboardBuilder("Diapause").Uid("diapause").Tags([]string{"diapause"}).Readonly().
		Description("Checkpoints, restores and sleeping pods. docs/operations/monitoring.md says what each metric tells.").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Time("now-6h", "now").Refresh("1m").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("pod").Label("Agent or controller").Datasource(source()).
			Query(dashboard.StringOrMap{String: new("label_values(diapause_build_info, pod)")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).IncludeAll(true).AllValue(".*").Current(everyPod()))
	id := uint32(0)
	for _, r := range rows() {
		id++
		b.WithRow(dashboard.NewRowBuilder(r.question).Id(id))
		for _, p := range r.panels {
			id++
			b.WithPanel(p.builder(id))
		}
	}
	return b.Build()
}

// source is the data source that the user of the dashboard chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// everyPod is the choice with which the dashboard opens.
func everyPod() dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: new(true),
		Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	}
}

// builder returns what builds the panel.
func (p panel) builder(id uint32) cog.Builder[dashboard.Panel] {
	if p.alarm > 0 {
		return p.stat(id)
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Datasource(source()).
		Span(p.width).Height(high).Unit(p.unit).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeAuto).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending))
	for i, q := range p.queries {
		b.WithTarget(q.target(i).Range())
	}
	return b
}

// stat returns what builds a panel with one value.
func (p panel) stat(id uint32) *stat.PanelBuilder {
	b := stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Datasource(source()).
		Span(p.width).Height(low).Unit(p.unit).GraphMode(common.BigValueGraphModeNone).
		ColorMode(common.BigValueColorModeBackground).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
			Steps([]dashboard.Threshold{{Color: "green"}, {Value: &p.alarm, Color: "red"}}))
	for i, q := range p.queries {
		b.WithTarget(q.target(i).Instant())
	}
	return b
}

// target returns what builds the query with the number i of its panel.
func (q query) target(i int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Datasource(source()).
		Expr(q.expr).LegendFormat(q.legend)
}
