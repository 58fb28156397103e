"""Comparisons as pictures: algbw over size, both axes logarithmic, with the links' limits; and bars. SVG, written by hand."""
import html
import math

from .vectors import size_text

WIDTH, HEIGHT = 980, 560
LEFT, RIGHT, TOP, BOTTOM = 90, 270, 60, 70
BARS_LEFT, BARS_RIGHT = 190, 230
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#00798c", "#8d6a4f", "#444444", "#c06c84", "#2e4057", "#9bc53d",
           "#f26419")
FRAME = "#444"
GRID = "#ddd"


class Axes:
    def __init__(self, sizes, speeds):
        self.sizes = sorted(set(sizes))
        self.low, self.high = math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds)))
        self.high = max(self.high, self.low + 1)

    def x(self, size):
        first, last = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        share = (math.log2(size) - first) / (last - first) if last > first else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, speed):
        share = (math.log10(speed) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def line(x1, y1, x2, y2, colour, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def grid(axes):
    parts = []
    for size in axes.sizes:
        x = axes.x(size)
        parts += [line(x, TOP, x, HEIGHT - BOTTOM, GRID), text(x, HEIGHT - BOTTOM + 20, size_text(size), "middle")]
    for power in range(axes.low, axes.high + 1):
        for digit in range(1, 10) if power < axes.high else (1,):
            speed = digit * 10.0 ** power
            y = axes.y(speed)
            parts.append(line(LEFT, y, WIDTH - RIGHT, y, GRID, 'stroke-width="0.5"' if digit > 1 else ""))
            if digit == 1:
                parts.append(text(LEFT - 8, y + 4, f"{speed:g}", "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 20, "vector (bytes)", "middle"),
              text(0, 0, "algbw (GB/s)", "middle", f'transform="translate(24 {middle}) rotate(-90)"'),
              f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}" fill="none" stroke="{FRAME}"/>']
    return parts


def curve(axes, points, colour, dash):
    places = [(axes.x(size), axes.y(speed)) for size, speed in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" {dash}/>']
    return parts + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]


def write_picture(path, title, curves, limits):
    """curves: {name: [(bytes, GB/s)...]}; limits: {name: GB/s}."""
    speeds = [speed for points in curves.values() for _, speed in points] + list(limits.values())
    axes = Axes([size for points in curves.values() for size, _ in points], speeds)
    parts = grid(axes)
    for number, (name, speed) in enumerate(limits.items()):
        y = axes.y(speed)
        parts += [line(LEFT, y, WIDTH - RIGHT, y, FRAME, 'stroke-dasharray="7 4"'), text(LEFT + 6, y - 5, name, more='font-size="11"')]
    for number, (name, points) in enumerate(curves.items()):
        colour, y = COLOURS[number % len(COLOURS)], TOP + 10 + 22 * number
        dash = "" if name.startswith("QCCL") else 'stroke-dasharray="3 3"'
        parts += curve(axes, sorted(points), colour, dash)
        parts += [line(WIDTH - RIGHT + 16, y, WIDTH - RIGHT + 46, y, colour, f'stroke-width="2" {dash}'),
                  text(WIDTH - RIGHT + 54, y + 4, name)]
    write_svg(path, title, parts, HEIGHT)


def write_bars(path, title, bars):
    """bars: [(name, value, what is written behind the bar)...]. Bars of one colour have names with the same end."""
    most, colours, parts = max(value for _, value, _ in bars), {}, []
    for number, (name, value, words) in enumerate(bars):
        y = TOP + 26 * number
        colour = colours.setdefault(name.split(maxsplit=1)[-1], COLOURS[len(colours) % len(COLOURS)])
        length = value / most * (WIDTH - BARS_LEFT - BARS_RIGHT)
        parts += [text(BARS_LEFT - 10, y + 14, name, "end"), text(BARS_LEFT + length + 8, y + 14, words),
                  f'<rect x="{BARS_LEFT}" y="{y}" width="{length:.1f}" height="18" fill="{colour}"/>']
    write_svg(path, title, parts, TOP + 26 * len(bars) + 20)


def write_svg(path, title, parts, height):
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="13" fill="#222">',
            f'<rect width="{WIDTH}" height="{height}" fill="white" stroke="none"/>', text(LEFT, 34, title, more='font-size="17"')]
    with open(path, "w") as file:
        file.write("\n".join([*head, *parts, "</svg>"]) + "\n")
